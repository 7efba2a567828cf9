"""The bench from end to end over fakes: that it measures all parts and writes the page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware import bench
from hardware.clients import HOME
from hardware.tests.fakenode import FakeMachine

pytestmark = pytest.mark.slow


def test_without_hardware_it_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written, the status is 3, and one sentence names what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench.main(["--out", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("bench-gpu: ")
    assert not list(tmp_path.iterdir())


def test_it_measures_and_writes(tmp_path: Path, fake_cuda: Path) -> None:
    """Where MPS is missing it writes what time slicing can show, and why the rest is not there."""
    folder = tmp_path / "machine"
    folder.mkdir()
    env = os.environ | FakeMachine(folder, fake_cuda).env | {"PYTHONPATH": str(HOME)}
    argv = [sys.executable, "-m", "hardware.bench", "--seconds", "0.05", "--runs", "1"]
    argv += ["--out", str(tmp_path)]
    subprocess.run(argv, env=env, check=True, timeout=100)
    found = json.loads((tmp_path / "isolation" / "figures.json").read_text())
    assert found["machine"]["GPU"] == "Tesla T4, 16130 MiB"
    assert "nvidia-cuda-mps-control" in found["machine"]["MPS"]
    assert list(found["crowds"]["slicing"]) == ["1", "3", "5", "7"]
    assert found["crash"]["slicing"]["fault"]["neighbour"] == "fine"
    assert (tmp_path / "isolation" / "crowds.svg").exists()
