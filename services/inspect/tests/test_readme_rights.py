"""The rights that the README names for a command are those that the command uses."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from chartrights import request_right
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import POD, Run
from test_memory_in_use import path, plugin, usage

pytestmark = pytest.mark.slow

README: Final = Path(__file__).parents[1] / "README.md"
ROW: Final = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \|$", re.MULTILINE)
SAME: Final = "the same"
ARGUMENTS: Final = {
    "pending": "-A",
    "explain pod": "default/large",
    "usage": "-A",
    "whatif": "-f pod.yaml",
    "defrag --units": "3",
    "recommend": "-A",
    "idle": "-A",
    "snapshot": "-",
    "node-template": "n1",
    "topology show": "n1",
    "serve list": "-A",
}


def documented() -> Iterator[tuple[str, set[str]]]:
    """Commands and their rights by the table."""
    text = README.read_text(encoding="utf-8").partition("## Rights")[2]
    before: set[str] = set()
    for commands, rights in ROW.findall(text):
        listed, _, got = rights.partition(" `get` ")
        words = [word.removeprefix("and ") for word in listed.split(", ") if word != "and"]
        found = {f"list {word}" for word in words if word != SAME}
        found |= {f"get {word}" for word in got.split(", ") if word}
        before = found | (before if SAME in words else set())
        for command in re.findall(r"`([^`]+)`", commands):
            yield command, before


class AnyList(FakeApiServer):
    """Two pods, one of which waits, and no objects of any other kind."""

    def __init__(self) -> None:
        cluster = FakeCluster().node("n1", gpus=[Gpu(16)]).pod("a", 4, node="n1", index=0)
        node, *pods = cluster.pod("large", 40, phase="Pending").items
        super().__init__({"/api/v1/nodes": [node], "/api/v1/pods": [*pods, plugin("n1")]}, page=99)
        self.objects[path("n1")] = usage("n1", 1 << 30, a=1 << 30)

    def answer(self, target: str, *, authorized: bool) -> tuple[int, dict[str, Any] | str]:
        """As the base; every other list is empty."""
        status, body = super().answer(target, authorized=authorized)
        right = request_right("GET", target)
        empty = status == 404 and right is not None and right.verb == "list"
        return (200, {"metadata": {}, "items": []}) if empty else (status, body)

    def used(self) -> set[str]:
        """The rights of the requests that came, in the words of the README."""
        found = set[str]()
        for target in self.requests:
            if (right := request_right("GET", target)) is not None:
                maps = (right.resource, right.namespace) == ("configmaps", "kube-system")
                where = " of kube-system" if maps else ""
                found.add(f"{right.verb} {right.resource}{where}")
        return found


@pytest.mark.parametrize(("command", "rights"), dict(documented()).items())
def test_a_command_uses_the_rights_in_the_readme(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, rights: set[str]
) -> None:
    """No more of them, and no fewer."""
    (tmp_path / "pod.yaml").write_text(POD)
    monkeypatch.chdir(tmp_path)
    with AnyList().serving() as server:
        assert isinstance(server, AnyList)
        flags = (*ARGUMENTS.get(command, "").split(), "--kubeconfig")
        outcome = run(*command.split(), *flags, str(server.kubeconfig(tmp_path)))
        assert outcome.code != 2, outcome.err
        assert server.used() == rights


def test_most_commands_that_read_a_cluster_are_in_the_table() -> None:
    """An empty table would prove nothing."""
    assert len(dict(documented())) > 15
