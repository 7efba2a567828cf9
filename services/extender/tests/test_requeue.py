"""A pod that was refused by an older view goes back to its scheduler once there is room for it."""

import asyncio

import pytest
from objects import Object, node, placed, pod, whole_node
from running import WAIT_SECONDS, Running, until

from gpuextender.scheduling import requeue
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

RETRY = "gpushare/retry"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits are what production has, scaled down."""
    monkeypatch.setattr(requeue, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(requeue, "AGAIN_SECONDS", 0.05)


async def hold(cluster: FakeApiServer, extender: Running, name: str, units: int) -> Object:
    """A pod that holds memory of the first GPU of its node."""
    holder = placed(pod(f"holder-{name}", units), name, 0)
    await cluster.put("pods", holder)
    await extender.knows_pod(holder["metadata"]["uid"])
    return holder


async def full_node(cluster: FakeApiServer, extender: Running, name: str) -> Object:
    """A node with one GPU, and the pod that fills it."""
    await cluster.put("nodes", node(name, 16))
    await extender.knows_node(name)
    return await hold(cluster, extender, name, 16)


async def refused(cluster: FakeApiServer, extender: Running, item: Object, *names: str) -> Object:
    """A pod that exists and that filter refuses everywhere."""
    await cluster.put("pods", item)
    metadata = item["metadata"]
    known = extender.state.find
    await until("the pod is known", lambda: known(metadata["namespace"], metadata["name"]))
    assert (await extender.filter(item, *names))["NodeNames"] == []
    return item


def retries(cluster: FakeApiServer, name: str) -> int:
    """How often a pod was sent back to its scheduler."""
    return cluster.count("PATCH", f"/namespaces/default/pods/{name}/status")


async def settled(extender: Running) -> None:
    """Everything that is known has been looked at."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await extender.service.requeue.look():  # noqa: ASYNC110 - time is what it waits for
            await asyncio.sleep(0.05)


async def test_a_refused_pod_goes_back_when_room_is_there(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """The patch goes to the status of the very pod and changes one annotation."""
    holder = await full_node(cluster, requeue_only, "n")
    item = await refused(cluster, requeue_only, pod("waits", 8), "n")
    await settled(requeue_only)
    assert retries(cluster, "waits") == 0
    await cluster.delete("pods", holder["metadata"]["name"], "default")
    await until("it is sent back", lambda: retries(cluster, "waits"))
    stored = cluster.find("pods", "waits", "default")
    assert list(stored["metadata"]["annotations"]) == [RETRY]
    assert stored["spec"] == item["spec"]


async def test_a_refused_pod_goes_back_when_the_node_that_it_fits_comes_later(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """The scheduler has the node and offers it, which the extender refuses as unknown."""
    await full_node(cluster, requeue_only, "n")
    await refused(cluster, requeue_only, pod("waits", 8), "n", "new")
    await settled(requeue_only)
    assert retries(cluster, "waits") == 0
    await cluster.put("nodes", node("new", 16))
    await until("it is sent back", lambda: retries(cluster, "waits"))


async def test_the_next_pod_goes_back_when_the_first_does_not_take_the_room(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """A pod whose affinity excludes the node keeps nobody else waiting, and goes back once."""
    holder = await full_node(cluster, requeue_only, "n")
    for name, priority in (("first", 2), ("second", 1)):
        await refused(cluster, requeue_only, pod(name, 16, priority=priority), "n")
    await cluster.delete("pods", holder["metadata"]["name"], "default")
    await until("the second is sent back", lambda: retries(cluster, "second"))
    await settled(requeue_only)
    assert (retries(cluster, "first"), retries(cluster, "second")) == (1, 1)


async def test_a_gang_goes_back_when_its_last_pod_is_created(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """All its waiting pods are sent back, and none while a pod is missing."""
    await cluster.put("nodes", whole_node("n", 4))
    await requeue_only.knows_node("n")
    labels = {"gpu-topology": "train", "gpu-topology-replica": "3"}
    for number in range(2):
        item = pod(f"m{number}", gpus=1, labels=labels)
        await refused(cluster, requeue_only, item, "n")
    await settled(requeue_only)
    assert retries(cluster, "m0") == 0
    await cluster.put("pods", pod("m2", gpus=1, labels=labels))
    await until("both are sent back", lambda: retries(cluster, "m0") and retries(cluster, "m1"))
    assert not requeue_only.state.ledger.allocations()


async def test_a_gang_that_becomes_complete_goes_back_to_report_what_it_lacks(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """The scheduler's message was that pods were missing; once, not again and again."""
    await cluster.put("nodes", whole_node("n", 2))
    await requeue_only.knows_node("n")
    labels = {"gpu-topology": "train", "gpu-topology-replica": "3"}
    items = [pod(f"m{number}", gpus=1, labels=labels) for number in range(3)]
    for item in items[:2]:
        await refused(cluster, requeue_only, item, "n")
    await refused(cluster, requeue_only, items[2], "n")
    await until("both are sent back", lambda: retries(cluster, "m0") and retries(cluster, "m1"))
    for item in items:
        assert (await requeue_only.filter(item, "n"))["NodeNames"] == []
    await settled(requeue_only)
    assert (retries(cluster, "m0"), retries(cluster, "m2")) == (1, 0)


async def test_a_gang_goes_back_when_there_is_room_for_all(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """Room for one of its pods is not enough."""
    await cluster.put("nodes", node("n", 16, 16))
    await requeue_only.knows_node("n")
    holders = []
    for gpu in range(2):
        holder = placed(pod(f"holder-{gpu}", 16), "n", gpu)
        await cluster.put("pods", holder)
        await requeue_only.knows_pod(holder["metadata"]["uid"])
        holders.append(holder["metadata"]["name"])
    labels = {"gpu-topology": "train", "gpu-topology-replica": "2"}
    items = [pod(f"m{number}", 16, labels=labels) for number in range(2)]
    for item in items:
        await cluster.put("pods", item)
    await until("all are known", lambda: requeue_only.state.find("default", "m1"))
    for item in items:
        await refused(cluster, requeue_only, item, "n")
    await cluster.delete("pods", holders[0], "default")
    await until("the room is known", lambda: len(requeue_only.state.ledger.allocations()) == 1)
    await settled(requeue_only)
    assert retries(cluster, "m0") == retries(cluster, "m1") == 0
    await cluster.delete("pods", holders[1], "default")
    await until("both are sent back", lambda: retries(cluster, "m0") and retries(cluster, "m1"))
