"""``gpushare inspect`` on a terminal fits its width; everywhere else it is the original's table."""

import sys
from pathlib import Path

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpuinspect.commands.main import inspect_gpushare
from gpuinspect.terminal import output as terminal


def full() -> FakeCluster:
    """Nodes with 4, 2 and unknown GPUs, and pods of several sizes."""
    cluster = FakeCluster().node("a100", gpus=[Gpu(39, "NVIDIA A100-PCIE-40GB", mode="mps")] * 4)
    cluster.node("t4", address="10.0.0.2", gpus=[Gpu(15), Gpu(15, healthy=False)], cordoned=True)
    cluster.node("old", total=31, count=2)
    for place in range(5):
        cluster.pod(f"web-{place}", 3, node="a100", index=1)
    cluster.pod("train", 39, node="a100", index=0).pod("stray", 2, node="old")
    return cluster.pod("over", 17, node="t4", index=0)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 100 columns."""
    monkeypatch.setattr(terminal, "width", lambda *_: 100)


EXPECTED = """\
a100  54/156 GiB (34%)
  GPU 0   ████████████████████████  39/39  A100-PCIE-40GB  mps        train
  GPU 1   █████████░░░░░░░░░░░░░░░  15/39  A100-PCIE-40GB  mps        web-0 3, web-1 3, web-2 3, +2
  GPU 2   ░░░░░░░░░░░░░░░░░░░░░░░░   0/39  A100-PCIE-40GB  mps
  GPU 3   ░░░░░░░░░░░░░░░░░░░░░░░░   0/39  A100-PCIE-40GB  mps
old  2/31 GiB (6%)
  GPU 0   ░░░░░░░░░░░░░░░░░░░░░░░░   0/15  unknown
  GPU 1   ░░░░░░░░░░░░░░░░░░░░░░░░   0/15  unknown
  GPU ?   2 pending  stray 2
t4  17/30 GiB (56%)  cordoned  10.0.0.2
  GPU 0   ████████████████████████  17/15  Tesla T4        over-full  over
  GPU 1   ░░░░░░░░░░░░░░░░░░░░░░░░   0/15  Tesla T4        unhealthy

Allocated: 73/217 GiB (33%) on 3 nodes, 8 GPUs
Models: 4 x A100-PCIE-40GB, 2 x Tesla T4, 2 x unknown
Unhealthy: 1 GPU
"""


def test_a_terminal_shows_bars_models_health_and_pods(run: Run, wide: None) -> None:
    """Only GPUs that exist have a line."""
    assert run("inspect", on=full()).out == EXPECTED


@pytest.mark.parametrize("columns", [60, 72, 80, 133])
def test_every_line_fits_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """Names that do not fit are counted."""
    monkeypatch.setattr(terminal, "width", lambda *_: columns)
    cluster = full().node("a-rather-long-node-name.europe-west4-a.c.project.internal", total=15)
    lines = run("inspect", on=cluster).out.splitlines()
    assert [line for line in lines if len(line) > columns] == []


def test_a_narrow_terminal_gets_sixty_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less would show nothing."""
    monkeypatch.setattr(terminal, "width", lambda *_: 20)
    assert max(map(len, run("inspect", on=full()).out.splitlines())) == 60


def test_a_terminal_without_block_characters(
    run: Run, wide: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets ASCII."""
    monkeypatch.setattr(terminal, "shows", lambda _: False)
    out = run("inspect", on=full()).out
    assert "GPU 0   ####" in out
    assert out.isascii()


def test_control_characters_of_a_model_are_not_printed(run: Run, wide: None) -> None:
    """A node's annotation does not reach the terminal as commands."""
    out = run("inspect", on=FakeCluster().node("n", gpus=[Gpu(15, "T4\x1b[2J\r")])).out
    assert "\x1b" not in out
    assert "T4" in out


def test_the_original_name_prints_the_original_table(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """``kubectl inspect gpushare`` is the same on a terminal and in a pipe."""
    piped = run("inspect", on=full()).out
    path = tmp_path / "cluster.json"
    path.write_text(full().json())
    monkeypatch.setattr(terminal, "width", lambda *_: 100)
    monkeypatch.setattr(sys, "argv", ["kubectl-inspect-gpushare", "--snapshot", str(path)])
    with pytest.raises(SystemExit):
        inspect_gpushare()
    assert capsys.readouterr().out == piped
    assert piped.startswith("NAME  IPADDRESS  GPU0(Allocated/Total)")


@pytest.mark.parametrize("flags", [("-d",), ("--no-headers",), ("-o", "wide"), ("-o", "json")])
def test_other_forms_are_not_fitted(run: Run, wide: None, flags: tuple[str, ...]) -> None:
    """Details, wide, documents, and a table for a script."""
    assert "█" not in run("inspect", *flags, on=full()).out
