"""``gpushare verify`` on a node without Kubernetes, over fakes of driver and MPS."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hardware import barepods, reports
from hardware.clients import HOME
from hardware.tests.fakenode import FIRST_UUID, FakeMachine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

STANDIN = HOME / "standins" / "mps"
QUICK = ("share", "accounting", "memory", "processes", "overhead")


@pytest.fixture
def machine(
    tmp_path_factory: pytest.TempPathFactory, fake_cuda: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeMachine:
    """A machine with two T4, whose variables every program has."""
    found = FakeMachine(tmp_path_factory.mktemp("machine"), fake_cuda)
    found.env["PATH"] = f"{STANDIN}:{found.env['PATH']}"
    for name, value in found.env.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for sockets of MPS: under pytest's own, with workers, their paths are too long."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("mps", "mode", "memory"), [(False, "none", "known"), (True, "mps", "pass")]
)
def test_rows_are_proven_without_kubernetes(
    machine: FakeMachine,
    short_folder: Path,
    mps: bool,
    mode: str,
    memory: str,
) -> None:
    """The command's report has the node's mode, and each row that was asked for."""
    with machine.node(short_folder, mps=mps) as node:
        if mps:
            node.wait_for_mps(FIRST_UUID)
        folder = short_folder / "pods"
        folder.mkdir()
        report = barepods.verified(node, folder, QUICK)
    assert report["kubernetes"] == reports.NO_KUBERNETES
    (gpu,) = report["items"]
    assert gpu["mode"] == mode
    found = {row["row"]: row["verdict"] for row in gpu["rows"]}
    assert found == {
        "share": "pass",
        "accounting": "pass",
        "memory": memory,
        "processes": "known",
        "overhead": "pass",
    }, gpu["rows"]
