"""Builds the stand-in for the CUDA driver library once and keeps it in the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = "libcuda.so.1"
COMPILER = "cc"
FLAGS = ("-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")


def ensure(*, compiler: str = COMPILER) -> Path:
    """The folder with the library, for LD_LIBRARY_PATH; built if these sources have none yet.

    Args:
        compiler: `aarch64-linux-gnu-gcc` builds it for arm64, in a folder of its own.
    """
    target = "" if compiler == COMPILER else f"{compiler}-"
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpushare"
    folder = root / f"{target}{name()}"
    if not (folder / LIBRARY).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as aside:
            built = Path(aside) / LIBRARY
            sources = [str(path) for path in sorted(HERE.glob("*.c"))]
            argv = [compiler, *FLAGS, "-o", str(built), *sources]
            subprocess.run(argv, check=True, capture_output=True, timeout=120)
            built.replace(folder / LIBRARY)
    return folder


def name() -> str:
    """The name of the folder in which `ensure()` finds a library of its own processor."""
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"fakecuda-{digest.hexdigest()[:16]}"
