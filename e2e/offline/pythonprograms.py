"""Programs of PyPI that judge our stand-ins: in an environment of their own in the cache."""

import sys
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.progress import step

MONITORS = ("nvitop==1.7.2", "gpustat==1.1.1", "nvidia-ml-py==13.615.71")
_SECONDS = 600.0


def ensure_monitors() -> Path:
    """The folder of the programs `nvitop` and `gpustat`, installed if needed. Raises SetupError."""
    key = cachedir.content_key([*MONITORS, sys.version])
    return cachedir.entry("gpu-monitors", key, _install) / "bin"


def _install(folder: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    with step("install nvitop and gpustat"):
        run_command([uv, "venv", "--quiet", "--python", sys.executable, folder], timeout_s=_SECONDS)
        install = ["pip", "install", "--quiet"]
        run_command(
            [uv, *install, "--python", folder / "bin/python", *MONITORS], timeout_s=_SECONDS
        )
