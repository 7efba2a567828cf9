"""How far a long command is: a line on a terminal, and nothing anywhere else."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.terminal.progress import EVERY_SECONDS, START_SECONDS, Progress, counting

POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: {limits: "
MANIFEST = f"{POD}{{aliyun.com/gpu-mem: 1}}}}}}]}}\n"
QUICK = "import gpuinspect.terminal.progress as it; it.START_SECONDS = it.EVERY_SECONDS = -1.0\n"
CALL = "from gpuinspect.commands.main import main; import sys; sys.argv[0] = 'gpushare'; main()"


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_line_comes_after_a_second_and_goes_at_the_end() -> None:
    """It is written again at most ten times a second, and removed in the end."""
    stream, clock = io.StringIO(), Clock()
    progress = Progress("pods placed", 5000, stream=stream, clock=clock)
    progress.add(10)
    assert stream.getvalue() == ""
    clock.now = START_SECONDS
    progress.add(1990)
    progress.add()
    assert stream.getvalue() == "\r\x1b[Kpods placed: 2,000 of 5,000"
    clock.now += EVERY_SECONDS
    progress.reach(4000)
    progress.clear()
    assert stream.getvalue().endswith("\r\x1b[Kpods placed: 4,000 of 5,000\r\x1b[K")


def test_nothing_is_removed_that_was_not_written() -> None:
    """A quick command leaves standard error as it was."""
    stream = io.StringIO()
    progress = Progress("objects read", stream=stream)
    progress.add()
    progress.clear()
    assert stream.getvalue() == ""


def test_without_a_terminal_items_are_only_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Pipes and files get no line."""
    assert list(counting("pods placed")([1, 2, 3])) == [1, 2, 3]
    assert capsys.readouterr().err == ""


def on_a_terminal(arguments: Sequence[str | Path], *, term: str = "xterm") -> str:
    """What a command writes on a terminal, where the line appears at once."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-c", QUICK + CALL, *map(str, arguments)]
    with subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": term}
    ) as child:
        os.close(theirs)
        written = b""
        while chunk := _read(ours):
            written += chunk
    os.close(ours)
    assert child.returncode == 0, written
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


@pytest.fixture
def saved(cluster: FakeCluster, tmp_path: Path) -> Path:
    """A file with one node of eight GPUs."""
    path = tmp_path / "cluster.json"
    path.write_text(cluster.node("n", gpus=[Gpu(15)] * 8).json())
    return path


@pytest.mark.slow
def test_whatif_of_many_pods_shows_how_many_were_placed(saved: Path, tmp_path: Path) -> None:
    """Of all replicas of the manifest."""
    (tmp_path / "p.yaml").write_text(MANIFEST)
    options = ["--replicas", "20", "--snapshot", saved]
    written = on_a_terminal(["whatif", "-f", tmp_path / "p.yaml", *options])
    assert "pods placed: 19 of 20" in written
    assert "\r\x1b[K" in written.partition("19 of 20")[2]


@pytest.mark.slow
def test_replay_shows_how_many_gpus_were_requested(tmp_path: Path) -> None:
    """Of as many as the trace is to request."""
    (tmp_path / "n.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,96000,262144,8,T4\n")
    columns = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos"
    (tmp_path / "p.csv").write_text(f"{columns}\np,1,1,1,500,,LS\n")
    files = ["--nodes", tmp_path / "n.csv", "--pods", tmp_path / "p.csv"]
    written = on_a_terminal(["replay", *files, "--policy", "binpack", "--arrivals", "1"])
    assert "GPUs requested: 4 of 8" in written


@pytest.mark.slow
def test_snapshot_shows_objects_read_and_written(cluster: FakeCluster, tmp_path: Path) -> None:
    """Pages as they arrive, then the objects of the file."""
    for number in range(9):
        cluster.node(f"n{number}", gpus=[Gpu(15)])
    lists = {"/api/v1/nodes": cluster.items, "/api/v1/pods": []}
    with FakeApiServer(lists).serving() as server:
        options = ["--kubeconfig", server.kubeconfig(tmp_path)]
        written = on_a_terminal(["snapshot", tmp_path / "dump.json", *options])
    assert "objects read: 9" in written
    assert "objects written: 9 of 9" in written


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_line(saved: Path, tmp_path: Path) -> None:
    """It would show the control characters."""
    (tmp_path / "p.yaml").write_text(MANIFEST)
    options = ["--snapshot", saved]
    written = on_a_terminal(["whatif", "-f", tmp_path / "p.yaml", *options], term="dumb")
    assert "pods placed" not in written


def test_a_pipe_gets_no_line(run: Run, saved: Path, tmp_path: Path) -> None:
    """The answer is the same without a terminal."""
    (tmp_path / "p.yaml").write_text(MANIFEST)
    outcome = run("whatif", "-f", str(tmp_path / "p.yaml"), "--snapshot", str(saved))
    assert (outcome.code, "pods placed" in outcome.err) == (0, False)
