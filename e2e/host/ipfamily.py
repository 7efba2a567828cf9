"""The family of the addresses that the pods and Services of a test cluster have.

``GPUSHARE_IP_FAMILY`` is ``ipv4``, which holds without it, or ``ipv6``: then no pod has another.
"""

import os
from typing import Final

from host.errors import SetupError

VARIABLE: Final = "GPUSHARE_IP_FAMILY"
FAMILIES: Final = ("ipv4", "ipv6")
_TEXT: Final = os.environ.get(VARIABLE, "")  # before a fixture takes our settings away


def ip_family(text: str = _TEXT) -> str:
    """The family of this run, one of :data:`FAMILIES`.

    Raises:
        SetupError: the text is another.
    """
    family = text or FAMILIES[0]
    if family not in FAMILIES:
        raise SetupError(f"{VARIABLE}: '{text}' is neither {' nor '.join(FAMILIES)}")
    return family
