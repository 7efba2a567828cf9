"""Programs of others in tests: a test without them is skipped, but fails where CI=true."""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from host.errors import SetupError

T = TypeVar("T")


def obtained(ensure: Callable[[], T]) -> T:
    """What ``ensure`` returns; where it cannot be had, the reason of the skip."""
    try:
        return ensure()
    except SetupError as reason:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            raise
        pytest.skip(str(reason))
