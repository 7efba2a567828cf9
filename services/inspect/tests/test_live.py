"""Reading a live API server: credentials, pages, refusals."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer
from invoking import Run

from gpukube.blocking import BlockingClient

pytestmark = pytest.mark.slow

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """A cluster of three nodes with three pods, two objects a page."""
    for name in ("n1", "n2", "n3"):
        cluster.node(name, total=30, count=2).pod(f"p-{name}", 2, node=name, index=0)
    by_kind = {kind: [i for i in cluster.items if i["kind"] == kind] for kind in ("Node", "Pod")}
    unhealthy = {
        "metadata": {"name": "unhealthy-gpu-n2", "namespace": "kube-system"},
        "data": {"gpus": "1"},
    }
    lists = {NODES: by_kind["Node"], PODS: by_kind["Pod"], CONFIG_MAPS: [unhealthy]}
    with FakeApiServer(lists).serving() as serving:
        yield serving


@pytest.fixture
def flag(server: FakeApiServer, tmp_path: Path) -> str:
    """The flag that points to the server."""
    return f"--kubeconfig={server.kubeconfig(tmp_path)}"


def test_every_page_is_read(run: Run, server: FakeApiServer, flag: str) -> None:
    """The table has the nodes and pods of all pages of the lists."""
    outcome = run("inspect", flag)
    assert outcome.code == 0
    rows = [line.split()[0] for line in outcome.out.splitlines()[1:4]]
    assert rows == ["n1", "n2", "n3"]
    assert outcome.out.splitlines()[-1] == "6/90 (6%)  "
    assert any("continue=2" in request for request in server.requests)
    assert not any("resourceVersion" in request for request in server.requests)


def test_a_token_and_a_version_are_never_sent_together(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """The first page may come from the cache; the others continue it."""
    path = server.kubeconfig(tmp_path)
    with BlockingClient.connect(path, user_agent="test", seconds=60) as kube:
        assert len(list(kube.pages(NODES, cached=True))) == 2
    first, second = server.requests
    assert ("resourceVersion=0" in first, "continue" in first) == (True, False)
    assert ("resourceVersion" in second, "continue=2" in second) == (False, True)


def test_unhealthy_config_map_is_noted(run: Run, flag: str) -> None:
    """A GPU withdrawn by the legacy ConfigMap is named in a note."""
    assert "note: n2 GPU1 is unhealthy" in run("inspect", flag).err


def test_the_plugins_own_config_map_is_not_another_opinion(
    run: Run, server: FakeApiServer, flag: str
) -> None:
    """The extender goes by the node's inventory, which holds the same; so does what is shown."""
    (written,) = server.lists[CONFIG_MAPS]
    written["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "gpushare-device-plugin"}
    assert "unhealthy" not in run("inspect", flag).err


def test_config_maps_may_be_forbidden(run: Run, server: FakeApiServer, flag: str) -> None:
    """Without the right to read config maps the table is still there."""
    server.statuses[CONFIG_MAPS] = 403
    outcome = run("inspect", flag)
    assert outcome.code == 0
    assert "unhealthy" not in outcome.err


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_refusal_is_a_sentence(run: Run, server: FakeApiServer, flag: str, status: int) -> None:
    """A failing list ends with exit code 1, the path, the status and the server's words."""
    server.statuses[PODS] = status
    outcome = run("inspect", flag)
    assert (outcome.code, outcome.out) == (1, "")
    first, where, step = outcome.err.splitlines()
    assert first.startswith("error: ")
    assert first.endswith(f": GET {PODS}: {status} the fake refuses")
    assert where.startswith(f"  where: server {server.url}, context here, user me, kubeconfig ")
    assert step.startswith("  next: ")


def test_the_context_chooses_the_user(run: Run, flag: str) -> None:
    """``--context`` takes the credentials of that context."""
    outcome = run("inspect", flag, "--context", "stranger")
    assert f": GET {NODES}: 401 Unauthorized\n" in outcome.err
    assert "context stranger, user nobody" in outcome.err


def test_no_server_is_a_sentence(run: Run, tmp_path: Path) -> None:
    """Without a listener on the port, the command reports it and exits with code 1."""
    with FakeApiServer({}).serving() as gone:
        path = gone.kubeconfig(tmp_path)
    with socket.socket() as silent:  # has a port that nobody else can take, and does not listen
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        path.write_text(path.read_text().replace(gone.url, f"http://127.0.0.1:{port}"))
        outcome = run("inspect", "--kubeconfig", str(path), "--request-timeout", "2")
    assert outcome.code == 1
    assert "nothing listens at the address of the API server" in outcome.err


def test_no_kubeconfig_is_a_sentence(run: Run, tmp_path: Path) -> None:
    """A kubeconfig that is not there ends with exit code 1, its name and the next step."""
    outcome = run("inspect", "--kubeconfig", str(tmp_path / "none"))
    assert outcome.code == 1
    assert outcome.err.startswith(f"error: no kubeconfig: tried {tmp_path / 'none'} ")
    assert len(outcome.err.splitlines()) == 3


def test_unknown_node_is_a_sentence(run: Run, flag: str) -> None:
    """A node that does not exist is printed as kubectl does."""
    assert run("inspect", "n9", flag) == (1, "", 'error: nodes "n9" not found\n')
