"""What should go wrong: words in MPS_STANDIN_FAULTS, or in a file `faults` beside the pipes.

The file is read anew before every command, so a daemon that works can be broken.
"""

import os
from contextlib import suppress
from pathlib import Path

WORDS = {
    "crash": "end with status 1 instead of starting",
    "mute": "take commands and never answer them",
    "deaf": "ignore quit and SIGTERM",
    "old": "know neither multi-user mode nor get_server_status, as driver 535",
}


def words(pipe: Path) -> frozenset[str]:
    """The faults that are on.

    Raises:
        ValueError: a word is not one of WORDS: a fault that silently is none proves nothing.
    """
    text = os.environ.get("MPS_STANDIN_FAULTS", "")
    with suppress(OSError):
        text += " " + (pipe.parent / "faults").read_text()
    found = frozenset(text.split())
    if unknown := found - set(WORDS):
        raise ValueError(f"unknown faults: {', '.join(sorted(unknown))}")
    return found
