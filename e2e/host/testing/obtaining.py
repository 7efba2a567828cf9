"""Programs of others in tests: a test without them is skipped, but fails where CI=true."""

from collections.abc import Callable
from typing import TypeVar

from host.errors import SetupError
from host.testing.lacking import lacking

T = TypeVar("T")


def obtained(ensure: Callable[[], T]) -> T:
    """What ``ensure`` returns; where it cannot be had, the reason of the skip."""
    try:
        return ensure()
    except SetupError as reason:
        lacking("a program cannot be had", reason)
