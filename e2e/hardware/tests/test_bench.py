"""The bench from end to end over fakes: that it measures all parts and writes the page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprobe.names import OUT_OF_MEMORY
from hardware import bench
from hardware.clients import HOME
from hardware.tests.fakenode import FakeMachine

pytestmark = pytest.mark.slow

STANDIN = HOME / "standins" / "mps"


def test_without_hardware_it_reports_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written, the status is 3, and one sentence names what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench.main(["--out", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("bench-gpu: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(300)
def test_it_measures_and_writes(tmp_path: Path, fake_cuda: Path) -> None:
    """All parts are measured in both modes, the daemon of MPS being a stand-in."""
    folder = tmp_path / "machine"
    folder.mkdir()
    env = os.environ | FakeMachine(folder, fake_cuda).env | {"PYTHONPATH": str(HOME)}
    env["PATH"] = f"{STANDIN}:{env['PATH']}"
    argv = [sys.executable, "-m", "hardware.bench", "--seconds", "0.05", "--runs", "1"]
    argv += ["--clients", "1", "2", "--rows", "share", "memory"]
    argv += ["--out", str(tmp_path)]
    subprocess.run(argv, env=env, check=True, timeout=280)
    found = json.loads((tmp_path / "isolation" / "figures.json").read_text())
    assert found["machine"]["GPU"] == "Tesla T4, 16130 MiB"
    for part in ("memory", "alone", "crowds", "crash"):
        assert list(found[part]) == ["slicing", "mps"]
    assert found["memory"]["mps"]["small"]["refusal"] == OUT_OF_MEMORY
    assert list(found["crowds"]["mps"]) == ["1", "2"]
    rate = {percent: each["tflops"][0] for percent, each in found["threads"].items()}
    for less, more in (("10", "50"), ("10", "100"), ("25", "100")):  # far apart: load blurs them
        assert rate[less] < rate[more]
    assert {path.name for path in (tmp_path / "isolation").iterdir()} == {
        "figures.json",
        "crowds.svg",
        "threads.svg",
        "reports",
    }
    names = {path.name for path in (tmp_path / "isolation" / "reports").iterdir()}
    assert names == {"tesla-t4-418.87.01-none.json", "tesla-t4-418.87.01-mps.json"}
    page = (tmp_path / "isolation.md").read_text()
    assert "mode mps, without Kubernetes |" in page
    assert "| not measured |" in page
