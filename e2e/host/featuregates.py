"""Feature gates of Kubernetes that a run of the cases switches on or off.

``GPUSHARE_FEATURE_GATES`` has them in the form of the flag, such as ``AllBeta=true,AllAlpha=true``.
They are for the newest version; API versions that are off by default are then served, since gates
need theirs.
"""

import os
from collections.abc import Mapping
from typing import Final

from host.errors import SetupError

VARIABLE: Final = "GPUSHARE_FEATURE_GATES"
_TEXT: Final = os.environ.get(VARIABLE, "")  # before a fixture takes our settings away


def feature_gates(text: str = _TEXT) -> Mapping[str, bool]:
    """The gates by name.

    Raises:
        SetupError: the text is not of the form ``Name=true,Other=false``.
    """
    found = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if not name.isalnum() or value not in {"true", "false"}:
            raise SetupError(f"{VARIABLE}: '{item}' is not of the form Name=true or Name=false")
        found[name] = value == "true"
    return found
