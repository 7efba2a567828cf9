"""Room that a preemption makes is not given to a pod of the same or a lower priority."""

import json

import pytest
from objects import Object, node, placed, pod
from running import Running, until

from gpucore.model import Code
from gpucore.units import NodeName
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

N = NodeName("n")


def nominated(item: Object, name: str) -> Object:
    """The pod once its scheduler evicts others for it."""
    return item | {"status": {"phase": "Pending", "nominatedNodeName": name}}


async def wait_for(cluster: FakeApiServer, extender: Running, item: Object) -> Object:
    """A pod that waits, as the watch has brought it."""
    await cluster.put("pods", item)
    metadata, find = item["metadata"], extender.state.find
    await until("the pod is known", lambda: find(metadata["namespace"], metadata["name"]))
    return item


async def one_gpu(cluster: FakeApiServer, extender: Running, used: int) -> None:
    """A node with one GPU of 16 units, of which a pod holds some."""
    await cluster.put("nodes", node("n", 16))
    await extender.knows_node("n")
    if used:
        holder = placed(pod("victim", used), "n", 0)
        await cluster.put("pods", holder)
        await extender.knows_pod(holder["metadata"]["uid"])


@pytest.mark.parametrize(("priority", "fits"), [(0, False), (10, False), (11, True)])
async def test_room_of_a_nominated_pod_goes_to_higher_priorities_only(
    cluster: FakeApiServer, extender: Running, priority: int, *, fits: bool
) -> None:
    """Filter and bind refuse the others, and state for how many pods capacity is reserved."""
    await one_gpu(cluster, extender, used=0)
    item = nominated(pod("urgent", 16, priority=10), "n")
    await wait_for(cluster, extender, item)
    other = await wait_for(cluster, extender, pod("other", 8, priority=priority))
    answer = await extender.filter(other, "n")
    assert answer["NodeNames"] == (["n"] if fits else [])
    if not fits:
        assert "capacity is reserved for 1 pod nominated" in answer["FailedNodes"]["n"]
        assert answer["FailedAndUnresolvableNodes"] == {}
        code, error = await extender.bind(other, "n")
        assert (code, "capacity is reserved for 1 pod nominated" in error) == (500, True)
    assert (await extender.filter(item, "n"))["NodeNames"] == ["n"]
    assert (await extender.bind(item, "n"))[0] == 200


async def test_room_is_kept_while_only_part_of_it_is_there(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The first victim has ended, the second has not: what is free already is kept as well."""
    await one_gpu(cluster, extender, used=8)
    await wait_for(cluster, extender, nominated(pod("urgent", 16, priority=10), "n"))
    other = await wait_for(cluster, extender, pod("other", 8))
    assert (await extender.filter(other, "n"))["NodeNames"] == []


async def test_nothing_is_kept_once_the_pod_waits_no_more(
    cluster: FakeApiServer, requeue_only: Running
) -> None:
    """A nominated pod that is deleted, or nominated elsewhere, keeps nothing."""
    await one_gpu(cluster, requeue_only, used=0)
    other = await wait_for(cluster, requeue_only, pod("other", 8))
    item = pod("urgent", 16, priority=10)
    for change in ("deleted", "elsewhere"):
        await wait_for(cluster, requeue_only, nominated(item, "n"))
        await until("it is nominated", lambda: requeue_only.state.nominations.nodes() == {"n"})
        assert (await requeue_only.filter(other, "n"))["NodeNames"] == []
        if change == "deleted":
            await cluster.delete("pods", "urgent", "default")
        else:
            await cluster.put("pods", nominated(item, "m"))
        await until("it is known", lambda: requeue_only.state.nominations.nodes() != {"n"})
        await until("the other is sent back", lambda: cluster.count("PATCH", "/pods/other/status"))
        assert (await requeue_only.filter(other, "n"))["NodeNames"] == ["n"]


async def test_room_for_both_is_given_to_both(cluster: FakeApiServer, extender: Running) -> None:
    """Only what the nominated pod needs is kept."""
    await one_gpu(cluster, extender, used=0)
    await wait_for(cluster, extender, nominated(pod("urgent", 8, priority=10), "n"))
    other = await wait_for(cluster, extender, pod("other", 8))
    assert (await extender.filter(other, "n"))["NodeNames"] == ["n"]
    assert (await extender.bind(other, "n"))[0] == 200


async def test_read_api_promises_nothing_that_filter_refuses(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Explain and what-if count what the nominated pod is going to hold, as filter does."""
    await one_gpu(cluster, extender, used=8)
    await wait_for(cluster, extender, nominated(pod("urgent", 8, priority=10), "n"))
    low = await wait_for(cluster, extender, pod("low", 12))
    _, text = await extender.get("/api/v1/pods/default/low/explain")
    assert json.loads(text)["helps"] == [Code.INSUFFICIENT_MEMORY.remedy]
    reserved = "capacity is reserved for 1 pod nominated to this node"
    refused, placed_before = await what_if(extender, 10), await what_if(extender, 11)
    assert (placed_before["fits"], refused["fits"]) == (True, False)
    assert reserved in refused["refusals"][0]["text"]
    assert refused["refused"][0]["figures"].endswith(reserved)
    less = await wait_for(cluster, extender, pod("less", 8, priority=10))
    assert reserved in (await extender.filter(less, "n"))["FailedNodes"]["n"]
    await cluster.delete("pods", "victim", "default")
    await until("it has ended", lambda: not extender.state.ledger.nodes()[N].allocations)
    assert (await extender.filter(low, "n"))["NodeNames"] == []


async def what_if(extender: Running, priority: int) -> Object:
    """The answer about a share of 8 units."""
    question = {"pods": [{"name": "new", "mem": 8, "priority": priority}]}
    _, answer = await extender.post("/api/v1/whatif", question)
    found: Object = answer["items"][0]
    return found
