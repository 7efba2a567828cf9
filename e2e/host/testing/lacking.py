"""What a test needs and this machine lacks: the test is skipped, but in CI it fails."""

from typing import NoReturn

import pytest

from host.ci import in_ci


def lacking(what: str, reason: Exception) -> NoReturn:
    """End the test with the reason.

    Args:
        what: what is missing, such as ``no control plane``.

    Raises:
        Exception: the reason, in CI.
    """
    if in_ci():
        raise reason
    pytest.skip(f"{what}: {reason}")
