"""NVIDIA's own NVML library on a machine without a driver: the plugin says so and exits.

The library of driver 535 comes from Debian's packages; where that is impossible the tests are
skipped, but with CI=true they fail.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import offline
from host.testing.obtaining import obtained

SECONDS = 120
OPEN = """
from gpudeviceplugin.gpus.devices import DriverUnavailableError
from gpudeviceplugin.gpus.nvml import Nvml
try:
    Nvml(lambda: ".").open()
except DriverUnavailableError as error:
    print(error, "|", error.__cause__.value)
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver"),
]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python that finds NVIDIA's library by name, as in a container."""
    env = os.environ | {"LD_LIBRARY_PATH": str(obtained(offline.ensure_nvml).parent)}
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip


def test_a_missing_driver_is_an_unavailable_driver() -> None:
    """The real library answers nvmlInit with NVML_ERROR_DRIVER_NOT_LOADED, 9."""
    done = run("-c", OPEN)
    assert done.stdout == "nvmlInit: Driver Not Loaded | 9\n", done.stderr
