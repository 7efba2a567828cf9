"""The fake driver library, built once for all tests here."""

import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "fakecuda.c"


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ``libcuda.so.1`` for LD_LIBRARY_PATH."""
    folder = tmp_path_factory.mktemp("fakecuda")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    argv = ["cc", *flags, "-o", str(folder / "libcuda.so.1"), str(SOURCE)]
    subprocess.run(argv, check=True, timeout=60)
    return folder
