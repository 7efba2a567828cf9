"""What is read of a cluster: lists that are forbidden, broken or empty, and when they are read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer

from gpuinspect.collect import CONFIG_MAPS, FAILED_SCHEDULING, LiveReader, Wanted, live
from gpuinspect.collect import FORBIDDEN_SECONDS as LATER
from gpuinspect.errors import ClusterError
from gpuinspect.kube import Kube

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
LABELLED = Wanted("ConfigMap", "/api/v1/configmaps", {"labelSelector": "a=b"})


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """A node with a pod, one ConfigMap, and no events."""
    cluster.node("n", total=15).pod("p", 1, node="n", index=0)
    node, pod = cluster.items
    config = {"metadata": {"name": "c", "namespace": "kube-system"}}
    lists = {NODES: [node], PODS: [pod], CONFIG_MAPS.path: [config], FAILED_SCHEDULING.path: []}
    with FakeApiServer(lists).serving() as serving:
        yield serving


@pytest.fixture
def kube(server: FakeApiServer, tmp_path: Path) -> Kube:
    """A client of it."""
    return Kube.connect(kubeconfig=server.kubeconfig(tmp_path), context=None, timeout=60)


def lists_of(server: FakeApiServer, path: str) -> int:
    """How often a list was requested."""
    return sum(request.partition("?")[0] == path for request in server.requests)


def test_an_empty_list_is_known(kube: Kube) -> None:
    """A list that was read and holds nothing means that there is nothing."""
    found = live(kube, [FAILED_SCHEDULING])
    assert found.knows("Event")
    assert (found.all("Event"), found.missing) == ((), {})


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_list_that_cannot_be_read_is_not_an_empty_one(
    kube: Kube, server: FakeApiServer, status: int
) -> None:
    """Nothing is known of its kind, and the reason is kept; nodes and pods are there."""
    server.statuses[CONFIG_MAPS.path] = status
    found = live(kube, [CONFIG_MAPS, FAILED_SCHEDULING])
    assert not found.knows("ConfigMap")
    assert str(status) in found.missing["ConfigMap"]
    assert found.forbidden == ({CONFIG_MAPS.path} if status in {401, 403} else frozenset())
    assert (len(found.nodes), len(found.pods), found.knows("Event")) == (1, 1, True)


def test_a_kind_is_unknown_where_one_of_its_lists_is(kube: Kube, server: FakeApiServer) -> None:
    """What the other list holds is there, but none in it does not mean none in the cluster."""
    server.statuses[LABELLED.path] = 403
    found = live(kube, [CONFIG_MAPS, LABELLED])
    assert (found.knows("ConfigMap"), len(found.all("ConfigMap"))) == (False, 1)


def test_a_kind_that_was_not_requested_is_unknown(kube: Kube) -> None:
    """Nobody requested it, so nothing is known of it."""
    assert not live(kube).knows("ConfigMap")


@pytest.mark.parametrize("path", [NODES, PODS])
def test_nodes_and_pods_are_needed(kube: Kube, server: FakeApiServer, path: str) -> None:
    """Without them no question is answered."""
    server.statuses[path] = 403
    with pytest.raises(ClusterError, match="403"):
        live(kube)


def test_an_object_that_is_none_is_an_error(kube: Kube, server: FakeApiServer) -> None:
    """A list whose objects cannot be read is no cluster."""
    server.lists[PODS] = [{"metadata": {"name": 3}}]
    with pytest.raises(ClusterError, match="cannot be read"):
        live(kube)


def test_the_selector_of_a_list_is_sent(kube: Kube, server: FakeApiServer) -> None:
    """Only what is needed is requested."""
    live(kube, [FAILED_SCHEDULING])
    assert any("fieldSelector=involvedObject.kind" in request for request in server.requests)


def test_a_forbidden_list_is_requested_seldom(kube: Kube, server: FakeApiServer) -> None:
    """A dashboard without the right to read ConfigMaps does not request them at every read."""
    now = [0.0]
    read = LiveReader(kube, [CONFIG_MAPS, FAILED_SCHEDULING], lambda: now[0])
    server.statuses[CONFIG_MAPS.path] = 403
    for _ in range(3):
        assert "403" in read().missing["ConfigMap"]
    assert (lists_of(server, CONFIG_MAPS.path), lists_of(server, NODES)) == (1, 3)
    now[0] = LATER - 1.0
    assert not read().knows("ConfigMap")
    del server.statuses[CONFIG_MAPS.path]
    now[0] = LATER
    assert read().knows("ConfigMap")


def test_a_list_that_failed_is_requested_again_at_once(kube: Kube, server: FakeApiServer) -> None:
    """Only a refusal lasts; an error of the API server passes."""
    read = LiveReader(kube, [CONFIG_MAPS], lambda: 0.0)
    server.statuses[CONFIG_MAPS.path] = 500
    assert not read().knows("ConfigMap")
    del server.statuses[CONFIG_MAPS.path]
    assert read().knows("ConfigMap")


def test_repeated_reads_may_come_from_the_cache(kube: Kube, server: FakeApiServer) -> None:
    """A dashboard spares the store of the API server."""
    LiveReader(kube, [])()
    assert all("resourceVersion=0" in request for request in server.requests)
