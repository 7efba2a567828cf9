"""Fixtures: an empty cluster, the command, and the texts it is held to."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "helm" / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from drawncluster import FakeCluster
from fakehelm import FakeHelm
from invoking import Run, WhatIfOutcome

from gpuinspect.commands.main import app

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests use neither settings nor a proxy of the environment they run in."""
    for name in [name for name in os.environ if name.startswith("GPUSHARE_")]:
        monkeypatch.delenv(name)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Where a manifest is written."""
    return tmp_path / "pod.yaml"


@pytest.fixture
def cluster() -> FakeCluster:
    """An empty cluster."""
    return FakeCluster()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``gpushare ARGS`` on a snapshot that is given as a cluster, through standard input."""
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(*args: str, on: FakeCluster | None = None) -> WhatIfOutcome:
        flags = [] if on is None else ["--snapshot", "-"]
        raw = None if on is None else on.json()
        result = CliRunner().invoke(app, [*args, *flags], input=raw, prog_name="gpushare")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return WhatIfOutcome(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def golden() -> Callable[[str], str]:
    """The text of a file in ``golden/``."""
    return lambda name: (GOLDEN / name).read_text(encoding="utf-8")


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHelm:
    """A helm on PATH that lists one release, of another chart."""
    fake = FakeHelm(tmp_path, other="wordpress")
    monkeypatch.setenv("PATH", fake.path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return fake


@pytest.fixture
def no_helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No helm on PATH, so that the library is used, and no kubeconfig."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
