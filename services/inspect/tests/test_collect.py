"""What is read of a cluster: lists that are forbidden, broken or empty, and when they are read."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer

from gpuinspect.cluster.collect import (
    CONFIG_MAPS,
    FAILED_SCHEDULING,
    ClusterSource,
    ListRequest,
    LiveReader,
    live,
)
from gpuinspect.cluster.collect import FORBIDDEN_SECONDS as LATER
from gpukube.blocking import BlockingClient
from gpukube.errors import ForbiddenError, InvalidReplyError

pytestmark = pytest.mark.slow

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
LABELLED = ListRequest("ConfigMap", "/api/v1/configmaps", {"labelSelector": "a=b"})


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
def kube(server: FakeApiServer, tmp_path: Path) -> Iterator[BlockingClient]:
    """A client of it."""
    path = server.kubeconfig(tmp_path)
    with BlockingClient.connect(path, user_agent="test", seconds=60) as client:
        yield client


def lists_of(server: FakeApiServer, path: str) -> int:
    """How often a list was requested."""
    return sum(request.partition("?")[0] == path for request in server.requests)


def test_an_empty_list_is_known(kube: BlockingClient) -> None:
    """A list that was read and holds nothing means that there is nothing."""
    found = live(kube, [FAILED_SCHEDULING])
    assert found.was_read("Event")
    assert (found.all("Event"), found.missing) == ((), {})


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_list_that_cannot_be_read_is_not_an_empty_one(
    kube: BlockingClient, server: FakeApiServer, status: int
) -> None:
    """Nothing is known of its kind, and the reason is kept; nodes and pods are there."""
    server.statuses[CONFIG_MAPS.path] = status
    found = live(kube, [CONFIG_MAPS, FAILED_SCHEDULING])
    assert not found.was_read("ConfigMap")
    assert str(status) in found.missing["ConfigMap"]
    assert found.forbidden == ({CONFIG_MAPS.path} if status in {401, 403} else frozenset())
    assert (len(found.nodes), len(found.pods), found.was_read("Event")) == (1, 1, True)


def test_a_kind_is_unknown_where_one_of_its_lists_is(
    kube: BlockingClient, server: FakeApiServer
) -> None:
    """What the other list holds is there, but none in it does not mean none in the cluster."""
    server.statuses[LABELLED.path] = 403
    found = live(kube, [CONFIG_MAPS, LABELLED])
    assert (found.was_read("ConfigMap"), len(found.all("ConfigMap"))) == (False, 1)


def test_a_kind_that_was_not_requested_is_unknown(kube: BlockingClient) -> None:
    """A list that was not requested counts as unread."""
    assert not live(kube).was_read("ConfigMap")


@pytest.mark.parametrize("path", [NODES, PODS])
def test_nodes_and_pods_are_needed(kube: BlockingClient, server: FakeApiServer, path: str) -> None:
    """Without them no question is answered."""
    server.statuses[path] = 403
    with pytest.raises(ForbiddenError, match="403"):
        live(kube)


def test_an_object_that_is_none_is_an_error(kube: BlockingClient, server: FakeApiServer) -> None:
    """A list whose objects cannot be read is no cluster."""
    server.lists[PODS] = [{"metadata": {"name": 3}}]
    with pytest.raises(InvalidReplyError, match="cannot be parsed"):
        live(kube)


def test_the_selector_of_a_list_is_sent(kube: BlockingClient, server: FakeApiServer) -> None:
    """Only what is needed is requested."""
    live(kube, [FAILED_SCHEDULING])
    assert any("fieldSelector=involvedObject.kind" in request for request in server.requests)


def test_a_forbidden_list_is_requested_seldom(kube: BlockingClient, server: FakeApiServer) -> None:
    """A dashboard without the right to read ConfigMaps does not request them at every read."""
    now = [0.0]
    read = LiveReader(kube, [CONFIG_MAPS, FAILED_SCHEDULING], lambda: now[0])
    server.statuses[CONFIG_MAPS.path] = 403
    for _ in range(3):
        assert "403" in read().missing["ConfigMap"]
    assert (lists_of(server, CONFIG_MAPS.path), lists_of(server, NODES)) == (1, 3)
    now[0] = LATER - 1.0
    assert not read().was_read("ConfigMap")
    del server.statuses[CONFIG_MAPS.path]
    now[0] = LATER
    assert read().was_read("ConfigMap")


def test_a_list_that_failed_is_requested_again_at_once(
    kube: BlockingClient, server: FakeApiServer
) -> None:
    """Only a refusal lasts; an error of the API server passes."""
    read = LiveReader(kube, [CONFIG_MAPS], lambda: 0.0)
    server.statuses[CONFIG_MAPS.path] = 500
    assert not read().was_read("ConfigMap")
    del server.statuses[CONFIG_MAPS.path]
    assert read().was_read("ConfigMap")


def test_repeated_reads_may_come_from_the_cache(
    kube: BlockingClient, server: FakeApiServer
) -> None:
    """A dashboard spares the store of the API server."""
    LiveReader(kube, [])()
    assert all("resourceVersion=0" in request for request in server.requests)


def test_a_snapshot_is_read_in_place_of_a_cluster(cluster: FakeCluster, tmp_path: Path) -> None:
    """The file goes first, and no credentials are looked for."""
    path = tmp_path / "snapshot.json"
    path.write_text(cluster.node("n", total=15).json())
    source = ClusterSource(kubeconfig=tmp_path / "none", snapshot=path)
    found = source.read(CONFIG_MAPS)
    assert [node.name for node in found.nodes] == ["n"]
    assert not found.was_read("ConfigMap")


def test_a_source_has_the_credentials_of_its_flags(server: FakeApiServer, tmp_path: Path) -> None:
    """File, context and time-out; the cluster is read at once and not from the cache."""
    config = server.kubeconfig(tmp_path)
    found = ClusterSource(kubeconfig=config).read(CONFIG_MAPS, FAILED_SCHEDULING)
    assert (len(found.nodes), len(found.all("ConfigMap"))) == (1, 1)
    assert found.was_read("Event")
    assert not any("resourceVersion" in request for request in server.requests)
    with pytest.raises(ForbiddenError, match="401"):
        ClusterSource(kubeconfig=config, context="stranger").read()
    assert ClusterSource().timeout_seconds == 30.0
    assert ClusterSource(kubeconfig=config, timeout_seconds=7.0).connect().seconds == 7.0


def test_what_was_not_requested_again_keeps_its_reason(
    kube: BlockingClient, server: FakeApiServer
) -> None:
    """The reason of each list that is forbidden is its own, and an allowed one has none."""
    read = LiveReader(kube, [CONFIG_MAPS, FAILED_SCHEDULING], lambda: 5.0)
    server.statuses[CONFIG_MAPS.path] = 403
    first, second = read(), read()
    assert first.missing == second.missing
    assert list(second.missing) == ["ConfigMap"]
    assert CONFIG_MAPS.path in second.missing["ConfigMap"]
    assert second.forbidden == frozenset()
    assert second.was_read("Event")


def test_kinds_that_were_requested_come_with_the_rest(kube: BlockingClient) -> None:
    """Raw objects of every kind; an empty list is one too."""
    found = live(kube, [CONFIG_MAPS, FAILED_SCHEDULING])
    assert {kind: len(raws) for kind, raws in found.raw.items()} == {
        "Node": 1,
        "Pod": 1,
        "ConfigMap": 1,
        "Event": 0,
    }
    assert found.forbidden == frozenset()


def test_the_cache_is_requested_only_where_it_will_do(
    kube: BlockingClient, server: FakeApiServer
) -> None:
    """A command that runs once shows the cluster as it is."""
    live(kube, [CONFIG_MAPS])
    assert not any("resourceVersion" in request for request in server.requests)
    server.requests.clear()
    live(kube, [CONFIG_MAPS], cached=True)
    assert all("resourceVersion=0" in request for request in server.requests)


class OrderedClient:
    """Answers the list of nodes only once that of pods was requested."""

    def __init__(self) -> None:
        self.pods_requested = threading.Event()

    def pages(
        self, path: str, params: Mapping[str, str] | None = None, *, cached: bool = False
    ) -> Iterator[bytes]:
        """One empty page."""
        del params, cached
        if path == PODS:
            self.pods_requested.set()
        elif path == NODES:
            assert self.pods_requested.wait(60)
        yield b'{"metadata": {}, "items": []}'


def test_pods_are_listed_beside_the_others() -> None:
    """Their pages are most of what a large cluster sends, and wait for no other list."""
    assert live(cast("BlockingClient", OrderedClient())).pods == ()


def test_every_page_is_counted(cluster: FakeCluster, tmp_path: Path) -> None:
    """With the number of its objects, for the progress of a command."""
    for number in range(5):
        cluster.node(f"n{number}", total=15)
    counts: list[int] = []
    lists = {NODES: cluster.items, PODS: []}
    with FakeApiServer(lists).serving() as server:
        ClusterSource(server.kubeconfig(tmp_path)).read(count=counts.append)
    assert sorted(counts) == [0, 1, 2, 2]


def test_what_arrives_is_what_is_read(server: FakeApiServer, tmp_path: Path) -> None:
    """The same nodes and pods, live and from a file; also what could not be read."""
    server.statuses[CONFIG_MAPS.path] = 403
    source = ClusterSource(server.kubeconfig(tmp_path))
    whole = source.read(CONFIG_MAPS)
    with source.arriving(CONFIG_MAPS) as found:
        assert (found.nodes, tuple(found.pods)) == (whole.nodes, whole.pods)
    assert found.missing == whole.missing
    file = tmp_path / "snapshot.json"
    items = [item for path in (NODES, PODS) for item in server.lists[path]]
    file.write_bytes(msgspec.json.encode({"kind": "List", "items": items}))
    with ClusterSource(snapshot=file).arriving() as found:
        assert (found.nodes, tuple(found.pods)) == (whole.nodes, whole.pods)


@pytest.mark.parametrize("pod", [{"metadata": {"name": 3}}, {"metadata": 3}])
def test_a_pod_that_arrives_and_is_none_is_an_error(
    server: FakeApiServer, tmp_path: Path, pod: dict[str, Any]
) -> None:
    """The command ends with the sentence, not with a table that lacks the pod."""
    server.lists[PODS] = [*server.lists[PODS], pod]
    source = ClusterSource(server.kubeconfig(tmp_path))
    reason = r"GET /api/v1/pods: invalid list of pods: Expected .*\$\.items\[1\]"
    with source.arriving() as found, pytest.raises(InvalidReplyError, match=reason):
        list(found.pods)


def test_pods_that_cannot_be_listed_end_what_iterates_them(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """The error of the list comes in the place of its pods."""
    server.statuses[PODS] = 403
    with ClusterSource(server.kubeconfig(tmp_path)).arriving() as found:
        pods = iter(found.pods)
        with pytest.raises(ForbiddenError, match="403"):
            next(pods)
