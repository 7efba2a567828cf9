"""The stage of the plugin's tests.

A cluster over HTTP, a kubelet on unix sockets, the GPUs of a machine.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpudeviceplugin.command_line import settings_of
from gpudeviceplugin.settings import DevicePluginSettings
from gpukube.testing.clock import FakeClock

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "helm" / "tests"))
sys.path.insert(0, str(Path(__file__).parent))  # the fakes are packages beside the tests


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting may come from a variable: tests ignore those of their environment."""
    variables = {setting.variable for setting in settings_of(DevicePluginSettings)}
    for name in [name for name in os.environ if name.upper() in variables]:
        monkeypatch.delenv(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short path: the path of a unix socket in it has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gpu") as folder:
        yield Path(folder)


@pytest.fixture
async def clock() -> AsyncIterator[FakeClock]:
    """Waits of this test take no time."""
    fake = FakeClock(asyncio.get_running_loop())
    yield fake
    fake.restore()
