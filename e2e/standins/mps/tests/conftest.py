"""The stand-in's parts are found beside its program, and its Python is that of the tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture(scope="module", autouse=True)
def same_python() -> Iterator[None]:
    """What `python3` means to the program; it may be a script that takes long to find one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield
