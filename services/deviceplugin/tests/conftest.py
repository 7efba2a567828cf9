"""The stage of the plugin's tests.

A cluster over HTTP, a kubelet on unix sockets, the cards of a machine.
"""

import os
import sys
from pathlib import Path

import pytest

from gpudeviceplugin.settings import Settings

sys.path.insert(0, str(Path(__file__).parent))  # the fakes are packages beside the tests


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting may come from a variable: those of whoever runs the tests are none."""
    for name in [name for name in os.environ if name.lower() in Settings.model_fields]:
        monkeypatch.delenv(name)
