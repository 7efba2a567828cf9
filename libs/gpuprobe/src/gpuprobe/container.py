"""What a container was given: variables, device files, and the version of the driver below it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_VARIABLES: Final = re.compile(r"GPU_MEM_|GPU_GROUP$|^GPUSHARE_|^NVIDIA_|^CUDA_|^CGPU_")
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_DEVICES: Final = Path("/dev")


def described(environment: Mapping[str, str]) -> dict[str, Any]:
    """The variables of GPUs, the names of GPU device files, and the driver's version.

    The version is empty where there is no NVIDIA kernel module.
    """
    return {
        "variables": {
            name: value for name, value in environment.items() if _VARIABLES.search(name)
        },
        "devices": sorted(path.name for path in _DEVICES.glob("nvidia[0-9]*")),
        "driver": driver_version(_DRIVER.read_text() if _DRIVER.exists() else ""),
    }


def driver_version(text: str) -> str:
    """The version in the text of ``/proc/driver/nvidia/version``; empty for none."""
    found = re.search(r"(?:Kernel Module|for x86_64|for aarch64)\s+([0-9]+(?:\.[0-9]+)+)", text)
    return found[1] if found else ""
