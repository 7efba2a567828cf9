"""``gpushare watch``: frames in one place."""

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.terminal.output import colourful
from gpuinspect.terminal.screens import HOME, REST_OF_LINE, REST_OF_SCREEN, Frames, screen

pytestmark = pytest.mark.slow

PODS = "/api/v1/pods"


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """A cluster of one node with one pod."""
    cluster.node("n", total=15).pod("p", 2, node="n", index=0)
    node, pod = cluster.items
    with FakeApiServer({"/api/v1/nodes": [node], PODS: [pod]}).serving() as serving:
        yield serving


def frames(*, lines: int = 10, columns: int = 20) -> Frames:
    """Frames on a terminal of this size."""
    return Frames(lambda: os.terminal_size((columns, lines)), bold=False)


def shown(text: str) -> list[str]:
    """The lines of a frame without what moves the cursor."""
    assert text.startswith(HOME)
    assert text.endswith(REST_OF_SCREEN)
    plain = text.removeprefix(HOME).removesuffix(REST_OF_SCREEN).replace(REST_OF_LINE, "")
    return plain.splitlines()


def test_changed_lines_are_marked() -> None:
    """Nothing is marked at first; then what is new is, with a character."""
    screen = frames()
    assert shown(screen.draw("a 1\nb 1\n")) == ["  a 1", "  b 1"]
    assert shown(screen.draw("a 1\nb 2\n")) == ["  a 1", "* b 2"]
    assert shown(screen.draw("a 1\nb 2\n")) == ["  a 1", "  b 2"]


def test_what_does_not_fit_is_counted() -> None:
    """A frame is never taller or wider than the terminal."""
    lines = shown(frames(lines=5, columns=12).draw("".join(f"line {i} long\n" for i in range(9))))
    assert lines == ["  line 0 lon", "  line 1 lon", "  line 2 lon", "  ... 6 more"]


class Terminal(io.StringIO):
    """A terminal that keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("term", "obeyed"), [("xterm", True), ("dumb", False), ("", False)])
def test_only_a_terminal_that_obeys_control_sequences_gets_them(
    monkeypatch: pytest.MonkeyPatch, term: str, obeyed: bool
) -> None:
    """A dumb one would show them: its frames follow each other, and no word has a colour."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with screen() as show:
        show("frame")
    assert ("\x1b" in terminal.getvalue()) is obeyed
    assert colourful() is obeyed


def test_frames_follow_each_other_without_a_terminal(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """``--count`` frames are printed, each with the table."""
    config = server.kubeconfig(tmp_path)
    outcome = run("watch", "--count=2", "--interval=0.1", f"--kubeconfig={config}")
    assert outcome.code == 0
    assert outcome.out.count("2/15 (13%)") == 2
    assert "\x1b" not in outcome.out
    assert all("resourceVersion=0" in request for request in server.requests)


def test_nodes_and_pods_are_chosen_as_in_inspect(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """-l chooses nodes, -n the pods of -d; -A is for all of them."""
    config = f"--kubeconfig={server.kubeconfig(tmp_path)}"
    line = ("watch", "-d", "--count=1", config)
    others = (["-n", "other"], ["-A"], ["-n", "default"])
    assert ["default" in run(*line, *flags).out for flags in others] == [False, True, True]
    assert run(*line, "-n", "other", "-A").code == 2
    assert "no node offers shares" in run(*line, "-l", "zone=a").out


class FailingServer(FakeApiServer):
    """A cluster of one node with one pod; later lists of pods have these statuses."""

    def __init__(self, cluster: FakeCluster, *statuses: int) -> None:
        cluster.node("n", total=15).pod("p", 2, node="n", index=0)
        node, pod = cluster.items
        super().__init__({"/api/v1/nodes": [node], PODS: [pod]})
        self._later = list(statuses)

    def answer(self, target: str, *, authorized: bool) -> tuple[int, dict[str, Any] | str]:
        found = super().answer(target, authorized=authorized)
        if target.startswith(PODS):
            self.statuses[PODS] = self._later.pop(0) if self._later else 200
        return found


@pytest.mark.parametrize(("command", "head"), [("watch -d", "NAME:"), ("top gpu --watch", "NVML")])
def test_a_server_that_stops_answering_is_reported(
    run: Run, cluster: FakeCluster, tmp_path: Path, command: str, head: str
) -> None:
    """The frame has the last table, since when reads fail and why; the next read replaces it."""
    with FailingServer(cluster, 503, 503).serving() as server:
        flags = ("--count=4", "--interval=0.1", f"--kubeconfig={server.kubeconfig(tmp_path)}")
        outcome = run(*command.split(), *flags)
    assert outcome.code == 0
    failures = re.findall(r"reads fail since (\d\d:\d\d:\d\d): .*503 the fake refuses", outcome.out)
    assert len(failures) == 2
    assert len(set(failures)) == 1
    frames = outcome.out.split("reads fail")
    assert [frame.count(head) for frame in frames] == [1, 1, 2]


def test_arenas_refresh_goes_on_after_a_failed_read(
    run: Run, cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note has the reason; a right that is missing later does not come back, and ends it."""
    monkeypatch.setattr("gpuinspect.commands.top.REFRESH_SECONDS", 0)
    with FailingServer(cluster, 503, 200, 403).serving() as server:
        config = f"--kubeconfig={server.kubeconfig(tmp_path)}"
        outcome = run("top", "node", "n", "-d", "-r", config)
    assert outcome.out.count("NAME:") == 2
    assert re.search(r"note: reads fail since .* 503 the fake refuses", outcome.err)
    assert (outcome.code, "a right is missing" in outcome.err) == (1, True)


def test_a_snapshot_is_not_watched(run: Run, cluster: FakeCluster) -> None:
    """A file does not change, so the command states what to use instead."""
    assert run("watch", on=cluster).err == "error: a snapshot does not change: use inspect\n"
