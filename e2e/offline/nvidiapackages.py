"""NVIDIA's MPS control program and NVML library, from Debian's component `non-free`.

Tests compare our stand-ins with them. NVIDIA's licence forbids redistribution: they are fetched by
name where a test runs, unpacked into the cache folder, and put into no image. Neither needs a GPU
or a driver to start.
"""

from pathlib import Path

from host import cachedir
from host.errors import SetupError
from host.progress import step
from offline import packages

COMPONENT = "non-free"
_SUITE = "bookworm"
_MPS = "nvidia-cuda-mps"
_NVML = "libnvidia-ml1"


def ensure_mps_control() -> Path:
    """The program `nvidia-cuda-mps-control`, fetched if needed. Raises SetupError."""
    return _ensured(_MPS) / "usr/bin/nvidia-cuda-mps-control"


def ensure_nvml() -> Path:
    """The library `libnvidia-ml.so.1`, fetched if needed. Raises SetupError."""
    found = sorted(_ensured(_NVML).glob("usr/lib/*/nvidia/current/libnvidia-ml.so.1"))
    if not found:
        raise SetupError(f"Debian's package {_NVML} has no libnvidia-ml.so.1 where it is expected")
    return found[0]


def _ensured(package: str) -> Path:
    def unpack(folder: Path) -> None:
        with step(f"fetch {package}"):
            packages.unpack(package, suite=_SUITE, into=folder, component=COMPONENT)

    return cachedir.entry(package, cachedir.content_key([_SUITE, COMPONENT]), unpack)
