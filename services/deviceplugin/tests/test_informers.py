"""The plugin's informers: what a restored or failing API server does to its state."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakecluster.objects import node, planned
from stage import Stage

from gpudeviceplugin.cluster.informers import node_named, pods_of
from gpukube.testing.answers import status

pytestmark = pytest.mark.slow

WRITES = 300
"""After the backup: more than come after the restore while the plugin waits to watch again."""
PAUSES = 0.4 + 0.8 + 1.6
"""Seconds, at least: after the lost connection and after each of two watches."""


async def test_a_restored_api_server_is_listed_again(tmp_path: Path) -> None:
    """Pods that the backup does not have are forgotten, those that it has are expected again."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.kubelet.skip.add("old")
        stage.create("old", {"gpu-mem": 3}, annotations=planned(0, 3))
        backup = stage.cluster.snapshot()
        stage.cluster.pods.delete("default", "old")
        for _ in range(WRITES):
            stage.cluster.nodes.put(node("elsewhere"))
        stage.create("ghost", {"gpu-mem": 3}, annotations=planned(1, 3))
        assert stage.plugin is not None
        pods = stage.plugin.state.pods
        await stage.eventually(lambda: {pod.name for pod in pods.values()} == {"ghost"})
        stage.cluster.restore(backup)
        await stage.eventually(lambda: {pod.name for pod in pods.values()} == {"old"})


async def test_a_watch_that_keeps_answering_410_lists_ever_more_rarely(tmp_path: Path) -> None:
    """Between two lists of a node's pods there is a pause, also when each list succeeds."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        await stage.eventually(lambda: stage.cluster.watching("pods"))
        before = stage.cluster.lists("pods")
        for _ in range(200):
            stage.cluster.fail_next("watch", lambda _: status(410, "too old resource version"))
        began = asyncio.get_running_loop().time()
        stage.cluster.drop_watches()
        await stage.eventually(lambda: stage.cluster.lists("pods") >= before + 2)
        assert asyncio.get_running_loop().time() - began > PAUSES


async def test_the_first_lists_come_from_the_cache_of_the_api_server(tmp_path: Path) -> None:
    """A rollout of the DaemonSet sends no request to etcd."""
    stage = Stage(tmp_path)
    queries: list[dict[str, str]] = []
    for _ in range(2):
        stage.cluster.fail_next("list", lambda request: queries.append(dict(request.query)))
    async with stage:
        await stage.informed()
        await stage.eventually(lambda: len(queries) == 2)
    first = {"resourceVersion": "0", "limit": "1000"}
    assert sorted(query.pop("fieldSelector") for query in queries) == [
        "metadata.name=n1",
        "spec.nodeName=n1",
    ]
    assert queries == [first, first]


async def test_later_lists_of_pods_come_in_small_pages(tmp_path: Path) -> None:
    """A node full of the largest pods would take more memory than the plugin may have."""
    limits: dict[str, str] = {}

    def note(request: Any) -> None:
        if "limit" in request.query:
            limits[request.query["fieldSelector"]] = request.query["limit"]

    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        await stage.eventually(lambda: stage.cluster.watching("pods"))
        for _ in range(30):
            stage.cluster.fail_next("list", note)
            stage.cluster.fail_next("watch", lambda _: status(410, "too old resource version"))
        stage.cluster.drop_watches()
        await stage.eventually(lambda: len(limits) == 2)
    assert limits == {"spec.nodeName=n1": "8", "metadata.name=n1": "1000"}


def test_the_version_is_checked_where_it_costs_one_key() -> None:
    """A list of pods by their node would read all pods of the cluster from etcd."""
    pods, nodes = pods_of("n1"), node_named("n1")
    assert pods.version_path == "/api/v1/namespaces/default/pods"
    assert (nodes.version_path, nodes.version_name) == ("/api/v1/nodes", node()["metadata"]["name"])
