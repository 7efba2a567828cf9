"""TAB for names: contexts of the kubeconfig, and objects of the live cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.commands.main import app, command_of
from gpuinspect.commands.options import completion

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """Two nodes, three namespaces, and pods in one of them."""
    cluster.node("gpu-a", total=15).node("gpu-b", total=15).pod("web-0", 3).pod("web-1", 3)
    first, second, *pods = cluster.items
    names = [{"metadata": {"name": name}} for name in ("default", "team-a", "team-b")]
    lists = {"/api/v1/nodes": [first, second], NAMESPACES: names}
    with FakeApiServer({**lists, f"{NAMESPACES}/default/pods": pods}).serving() as serving:
        yield serving


def candidates(server: FakeApiServer, folder: Path, *words: str) -> list[str]:
    """What TAB offers for the last word."""
    flag = ["--kubeconfig", str(server.kubeconfig(folder))]
    at = 2 if words[0] == "explain" else 1
    line = [*words[:at], *flag, *words[at:]]
    return completion.candidates(command_of(app), line)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["pending", "-n", "team"], ["team-a", "team-b"]),
        (["usage", "--context", "h"], ["here"]),
        (["inspect", "gpu-"], ["gpu-a", "gpu-b"]),
        (["explain", "pod", "web"], ["web-0", "web-1"]),
        (["explain", "pod", "-n", "default", "web-1"], ["web-1"]),
    ],
)
def test_names(server: FakeApiServer, tmp_path: Path, words: list[str], names: list[str]) -> None:
    """Names that begin as the word does are offered."""
    assert candidates(server, tmp_path, *words) == names


def test_no_cluster_offers_nothing(server: FakeApiServer, tmp_path: Path) -> None:
    """Without rights TAB stays silent."""
    server.statuses[NAMESPACES] = 403
    assert candidates(server, tmp_path, "pending", "-n", "team") == []


def test_a_damaged_kubeconfig_offers_nothing(server: FakeApiServer, tmp_path: Path) -> None:
    """A file whose contexts are no list ends no completion in a traceback."""
    path = server.kubeconfig(tmp_path)
    path.write_text("contexts: 5")
    words = ["usage", "--kubeconfig", str(path), "--context", "h"]
    assert completion.candidates(command_of(app), words) == []


def test_impersonation(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """``--as`` is sent as kubectl sends it; what cannot be in a header is a usage error."""
    server.lists["/api/v1/pods"] = []
    flag = f"--kubeconfig={server.kubeconfig(tmp_path)}"
    assert run("pending", flag, "--as", "anna").code == 0
    assert set(server.impersonated) == {"anna"}
    assert run("pending", flag, "--as", "an\nna").code == 2
    server.statuses |= {"/api/v1/pods": 403, "/api/v1/namespaces/default/pods": 403}
    assert "user me as anna" in run("pending", flag, "--as", "anna").err
