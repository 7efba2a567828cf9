"""The commit of an earlier release, from which cases upgrade."""

import os

from environments import earlier
from host.errors import SetupError
from host.testing.lacking import lacking


def earlier_commit() -> str:
    """The commit in ``GPUSHARE_FROM``, else the newest tagged release."""
    found = os.environ.get("GPUSHARE_FROM") or earlier.newest_release()
    if not found:
        lacking("no release is tagged", SetupError("name a commit with GPUSHARE_FROM"))
    return found
