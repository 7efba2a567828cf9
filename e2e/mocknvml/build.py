"""Builds the stand-in NVML library once and keeps it in the user's cache.

Tests and the kind environment call `ensure()`; what it returns goes into LD_LIBRARY_PATH. The
cache is keyed by the content of the sources, so an edit builds anew and an old library is never
taken for a new one. It promises nothing about other machines: the library needs a glibc of at
least 2.33, and the processor that the compiler compiles for, which is this one's by default.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MACHINES = HERE / "machines"
LIBRARY = "libnvidia-ml.so.1"
BUILD_SECONDS = 120
COMPILER = "gcc"


class BuildError(Exception):
    """The library could not be built; the message ends with what the compiler reported."""


def ensure(*, compiler: str = COMPILER) -> Path:
    """Return the directory that holds the library, building it if no build of these sources exists.

    Safe to call from several processes at once: each builds aside, and the last rename wins.

    Args:
        compiler: `aarch64-linux-gnu-gcc` builds the library for arm64, in a directory of its own.
    """
    target = "" if compiler == COMPILER else f"{compiler}-"
    directory = _cache() / f"{target}{name()}"
    if not (directory / LIBRARY).is_file():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as aside:
            _make(Path(aside), compiler)
            (Path(aside) / LIBRARY).replace(directory / LIBRARY)
    os.utime(directory)  # in use: an old one is removed some day
    return directory


def name() -> str:
    """Return the name of the directory in which `ensure()` finds a library of its own processor."""
    return f"mocknvml-{_content_hash()}"


def machine(name: str) -> Path:
    """Return the description file of a shipped machine, such as `t4-2x16`."""
    return MACHINES / f"{name}.machine"


def _cache() -> Path:
    """Return the directory for our builds under the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpushare"


def _content_hash() -> str:
    """Return 16 hexadecimal digits over the names and bytes of all sources."""
    digest = hashlib.sha256()
    for path in sorted([HERE / "Makefile", *(HERE / "src").glob("*.[ch]")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _make(output: Path, compiler: str) -> None:
    """Compile into the directory; raise BuildError with the compiler's words if that fails."""
    command = ["make", "--no-print-directory", "-C", str(HERE), f"OUT={output}"]
    command.append(f"CC={compiler}")
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except FileNotFoundError as error:
        raise BuildError("make is not installed") from error
    except subprocess.CalledProcessError as error:
        raise BuildError(f"make failed:\n{error.stdout}{error.stderr}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"make took more than {BUILD_SECONDS} s") from error


if __name__ == "__main__":
    print(ensure())
