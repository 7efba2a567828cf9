"""Commands that fetch packages: a registry that answers slowly or fails once is tried again.

A refusal is final: what a registry does not have is not had by trying again.
"""

import re
import time
from collections.abc import Callable
from typing import TypeVar

from host.errors import SetupError
from host.progress import say

Value = TypeVar("Value")

PAUSES_S = (2.0, 10.0, 30.0)
"""Between the tries; one more try than pauses."""
TRANSIENT = re.compile(
    r"tim(ed|e) ?-?out|connection (reset|refused|closed|failed)|temporary failure|unexpected EOF"
    r"|unable to connect|could not connect|incompleteread|remote end closed|handshake"
    r"|failed to fetch|no such host|network is unreachable|(\b|HTTP )(429|50[0234])\b"
    r"|too many requests|service unavailable|bad gateway",
    re.IGNORECASE,
)

_MISSING = re.compile(r"\b404 +(Not Found|Client Error)")
"""No retry finds it, whatever else failed."""


def with_retries(
    fetch: Callable[[], Value], *, pause: Callable[[float], None] = time.sleep
) -> Value:
    """What ``fetch`` returns; called again after a pause where the network failed.

    Raises:
        SetupError: the last failure, or the first that is a refusal.
    """
    for seconds in PAUSES_S:
        try:
            return fetch()
        except SetupError as error:
            if _MISSING.search(str(error)) or not TRANSIENT.search(str(error)):
                raise
            reason = str(error).strip().splitlines()[-1].strip()
            say(f"a download failed and is tried again in {seconds:g} s: {reason}")
        pause(seconds)
    return fetch()
