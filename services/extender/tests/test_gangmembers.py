"""A gang reserves GPUs for pods that exist, for a bounded time, and for nobody else."""

from pathlib import Path

import pytest
from objects import Object, node, pod
from running import Running, until

from gpucore.wire.pod.gangs import gang_of
from gpukube.testing.apiserver import FakeApiServer

UNITS = 16
NODES = ("node-0", "node-1")


def member(name: str, size: int, mem: int = 1, **more: object) -> Object:
    """A pod of the gang ``g``."""
    labels = {"gpu-topology": "g", "gpu-topology-replica": str(size)}
    return pod(name, mem, labels=labels, **more)


def owned(item: Object, owner: str) -> Object:
    """The pod as its controller made it."""
    reference = {"apiVersion": "v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
    item["metadata"]["ownerReferences"] = [reference]
    return item


def used(extender: Running) -> int:
    """Units held or reserved in the whole cluster."""
    node_infos = extender.state.ledger.nodes().values()
    return sum(gpu.used for node_info in node_infos for gpu in node_info.devices.values())


async def fill_cluster(cluster: FakeApiServer, extender: Running) -> None:
    """Two nodes of two GPUs with 16 units each."""
    for name in NODES:
        await cluster.put("nodes", node(name, UNITS, UNITS, unit="GiB"))
        await extender.knows_node(name)


async def create(cluster: FakeApiServer, extender: Running, item: Object) -> Object:
    """A pod that the extender's watch has brought."""
    await cluster.put("pods", item)
    name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
    await until("the pod is known", lambda: extender.state.find(namespace, name))
    return item


@pytest.mark.slow
async def test_one_pod_of_a_gang_reserves_nothing_for_pods_that_do_not_exist(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A label that claims 64 members reserves no GPU memory and blocks nobody."""
    await fill_cluster(cluster, extender)
    lonely = await create(cluster, extender, member("evil", 64))
    answer = await extender.filter(lonely, *NODES)
    assert answer["NodeNames"] == []
    assert used(extender) == 0
    waits = "gang g waits for 63 of its 64 pods: 1 exists in namespace default"
    assert answer["FailedNodes"] == dict.fromkeys(NODES, waits)
    code, error = await extender.bind(lonely, NODES[0])
    assert (code, error.endswith(f": {waits}")) == (500, True)
    assert used(extender) == 0
    assert not (await extender.filter(pod("victim", UNITS), *NODES))["FailedNodes"]


@pytest.mark.slow
async def test_a_gang_whose_pods_exist_is_reserved_as_they_request(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A member that requests little is not reserved what the pending pod requests."""
    await fill_cluster(cluster, extender)
    large = await create(cluster, extender, member("large", 3, 16))
    await create(cluster, extender, member("small-0", 3, 1))
    await create(cluster, extender, member("small-1", 3, 1))
    assert len((await extender.filter(large, *NODES))["NodeNames"]) == 1
    assert used(extender) == 16


@pytest.mark.slow
async def test_pods_of_another_owner_are_not_reserved_for(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Two jobs that carry the same gang name reserve for their own pods alone."""
    await fill_cluster(cluster, extender)
    mine = [owned(member(f"mine-{i}", 2, 4), "job-a") for i in range(2)]
    theirs = [owned(member(f"theirs-{i}", 2, 4), "job-b") for i in range(2)]
    for item in (*mine, *theirs):
        await create(cluster, extender, item)
    labels = {"gpu-topology-replica": "4"}
    pending = mine[0]
    pending["metadata"]["labels"] |= labels
    await extender.filter(pending, *NODES)
    assert used(extender) == 8


@pytest.mark.slow
async def test_pods_of_another_namespace_or_with_scheduling_gates_are_no_members(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A gang waits for pods of its own namespace that a scheduler may place."""
    await fill_cluster(cluster, extender)
    first = await create(cluster, extender, member("first", 2))
    await create(cluster, extender, member("elsewhere", 2, namespace="other"))
    gated = member("gated", 2)
    gated["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    await create(cluster, extender, gated)
    assert (await extender.filter(first, *NODES))["NodeNames"] == []
    assert used(extender) == 0
    del gated["spec"]["schedulingGates"]
    await cluster.put("pods", gated)
    await until("the gate is gone", lambda: not extender.state.find("default", "gated").pod.gated)
    assert (await extender.filter(first, *NODES))["NodeNames"] != []
    assert used(extender) == 2


@pytest.mark.slow
async def test_a_reservation_shrinks_with_the_pods_it_is_for(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A member that is deleted takes its reservation with it."""
    await fill_cluster(cluster, extender)
    pods = [await create(cluster, extender, member(f"m{i}", 3, 4)) for i in range(3)]
    await extender.filter(pods[0], *NODES)
    assert used(extender) == 12
    await cluster.delete("pods", "m2", "default")
    await until("one place less", lambda: used(extender) == 8)


@pytest.mark.slow
async def test_pods_that_are_created_again_do_not_renew_a_reservation(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A namespace that reserved GPUs in vain must pause, whatever its next gang is called."""
    async with Running(cluster, tmp_path, bind_deadline=0.5, assume_ttl=1.5) as extender:
        await extender.ready()
        await fill_cluster(cluster, extender)
        pods = [await create(cluster, extender, member(f"m{i}", 2, 4)) for i in range(2)]
        await extender.filter(pods[0], *NODES)
        assert used(extender) == 8
        await until("the reservation has expired", lambda: not used(extender))
        for item in pods:
            await cluster.delete("pods", item["metadata"]["name"], "default")
        for name in ("again-0", "again-1"):
            item = member(name, 2, 4)
            item["metadata"]["labels"]["gpu-topology"] = "h"
            await create(cluster, extender, item)
        answer = await extender.filter(item, *NODES)
        assert answer["NodeNames"] == []
        assert used(extender) == 0
        text = answer["FailedNodes"][NODES[0]]
        assert text.startswith("gang h cannot reserve GPUs for another ")
        assert "namespace default" in text
        other = [member(f"o{i}", 2, 4, namespace="other") for i in range(2)]
        for item in other:
            await create(cluster, extender, item)
        assert (await extender.filter(other[0], *NODES))["NodeNames"] != []


@pytest.mark.slow
async def test_a_gang_is_complete_with_pods_that_request_no_gpu(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Arena's pod group counts parameter servers; they need to exist, and nothing is reserved."""
    await fill_cluster(cluster, extender)
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "tfjob-mnist",
        "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    }
    workers = [pod(f"w{i}", 4, labels=labels) for i in range(2)]
    for item in workers:
        await create(cluster, extender, item)
    assert (await extender.filter(workers[0], *NODES))["NodeNames"] == []
    server = pod("ps", labels=labels)
    await cluster.put("pods", server)
    pending = extender.state.find("default", "w0")
    gang = gang_of(pending.pod)
    await until("all are known", lambda: extender.state.members(pending, gang).exist == 3)
    assert (await extender.filter(workers[0], *NODES))["NodeNames"] != []
    assert used(extender) == 8
