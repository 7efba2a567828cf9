"""The fake driver library, built once."""

from pathlib import Path

import pytest

from standins.cuda import build


@pytest.fixture(scope="session")
def fake_cuda() -> Path:
    """A folder with a ``libcuda.so.1`` for LD_LIBRARY_PATH."""
    return build.ensure()
