"""preempt: only victims whose GPUs make room, fewest first, then lowest priority."""

from typing import Any

import pytest
from objects import node, placed, pod
from running import Running, until

from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

Object = dict[str, Any]
PATH = "/gpushare-scheduler/preempt"


async def run(
    cluster: FakeApiServer, extender: Running, *pods: tuple[str, int, int, int]
) -> dict[str, Object]:
    """Running pods on a node of 2 x 15: name, units, GPU, priority."""
    await cluster.put("nodes", node("n", 15, 15, unit="GiB"))
    await extender.knows_node("n")
    items = {}
    for name, units, gpu, priority in pods:
        item = placed(pod(name, units, uid=name, priority=priority), "n", gpu)
        items[name] = await cluster.put("pods", item)
        await extender.knows_pod(name)
    return items


def meta(*names: str, violations: int = 0) -> Object:
    """Victims by UID, as a scheduler with a node cache sends them."""
    return {"Pods": [{"UID": name} for name in names], "NumPDBViolations": violations}


async def ask(extender: Running, pending: Object, victims: Object) -> Object:
    """Nodes and UIDs that the extender answers."""
    body = {"Pod": pending, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    code, answer = await extender.post(PATH, body)
    assert code == 200
    nodes: Object = answer["NodeNameToMetaVictims"]
    return {name: [one["UID"] for one in entry["Pods"]] for name, entry in nodes.items()}


async def test_a_victim_on_another_gpu_is_spared(cluster: FakeApiServer, extender: Running) -> None:
    """Ten units are free over two GPUs and 12 are requested: only GPU 1's pod makes room."""
    await run(cluster, extender, ("a", 10, 0, 9), ("b", 4, 0, 0), ("c", 6, 1, 0))
    answer = await ask(extender, pod("p", 12, priority=10), {"n": meta("a", "b", "c")})
    assert answer == {"n": ["c"]}


async def test_one_victim_is_better_than_two(cluster: FakeApiServer, extender: Running) -> None:
    """Two small pods of the same priority stay when one large one does it."""
    await run(cluster, extender, ("a", 7, 0, 0), ("b", 7, 0, 0), ("c", 14, 1, 0))
    answer = await ask(extender, pod("p", 15, priority=10), {"n": meta("a", "b", "c")})
    assert answer == {"n": ["c"]}


async def test_among_equals_the_lowest_priority_goes(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Priorities of victims sent by UID are known from the watch."""
    await run(cluster, extender, ("a", 14, 0, 5), ("b", 14, 1, 3))
    answer = await ask(extender, pod("p", 8, priority=10), {"n": meta("a", "b")})
    assert answer == {"n": ["b"]}


async def waiting(
    cluster: FakeApiServer, extender: Running, name: str, units: int, priority: int
) -> None:
    """A pod that is nominated for the node and not placed yet."""
    item = pod(name, units, uid=name, priority=priority)
    await cluster.put("pods", item | {"status": {"phase": "Pending", "nominatedNodeName": "n"}})
    await until("the pod is known", lambda: extender.state.find("default", name))


@pytest.mark.parametrize(
    ("priority", "expected"), [(9, {"n": ["a"]}), (10, {}), (20, {})], ids=["lower", "same", "more"]
)
async def test_nobody_is_evicted_for_room_that_is_kept(
    cluster: FakeApiServer, extender: Running, priority: int, expected: Object
) -> None:
    """GPU 0 is free and kept for a nominated pod; GPU 1 has no room even without its victim."""
    await run(cluster, extender, ("a", 7, 1, 0), ("kept", 8, 1, 50))
    await waiting(cluster, extender, "urgent", 15, priority)
    answer = await ask(extender, pod("p", 10, priority=10), {"n": meta("a")})
    assert answer == expected


async def test_victims_make_room_beside_the_nominated_pod(
    cluster: FakeApiServer, extender: Running
) -> None:
    """One victim would be enough but for the nominated pod; the higher priority is named first."""
    await run(cluster, extender, ("a", 15, 0, 0), ("b", 15, 1, 1))
    victims = {"n": meta("a", "b")}
    assert await ask(extender, pod("p", 15, priority=10), victims) == {"n": ["a"]}
    await waiting(cluster, extender, "urgent", 15, 10)
    assert await ask(extender, pod("p", 15, priority=10), victims) == {"n": ["b", "a"]}


async def test_a_victim_is_spared_beside_a_nominated_pod(
    cluster: FakeApiServer, extender: Running
) -> None:
    """kube-scheduler proposes ``a`` by the sum of the node; the end of ``c`` alone is enough."""
    await run(cluster, extender, ("a", 4, 0, 0), ("kept", 9, 0, 50), ("c", 12, 1, 1))
    await waiting(cluster, extender, "urgent", 2, 10)
    answer = await ask(extender, pod("p", 7, priority=10), {"n": meta("a")})
    assert answer == {"n": ["c"]}


async def test_a_pod_is_not_in_its_own_way(cluster: FakeApiServer, extender: Running) -> None:
    """The room that is kept for a pod is its own when it preempts again."""
    await run(cluster, extender, ("a", 15, 0, 0), ("b", 15, 1, 1))
    await waiting(cluster, extender, "p", 15, 10)
    pending = pod("p", 15, uid="p", priority=10)
    assert await ask(extender, pending, {"n": meta("a", "b")}) == {"n": ["a"]}


async def test_a_node_where_no_eviction_helps_is_left_out(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Units of two GPUs do not make one GPU free; an unknown node never helps."""
    await run(
        cluster, extender, ("a", 6, 0, 0), ("kept", 9, 0, 50), ("b", 6, 1, 0), ("k", 9, 1, 50)
    )
    victims = {"n": meta("a", "b"), "ghost": meta("a")}
    assert await ask(extender, pod("p", 10, priority=10), victims) == {}


async def test_victims_of_other_resources_stay_victims(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A pod without a GPU was chosen for processors or memory; that is not ours to judge."""
    await run(cluster, extender, ("a", 14, 0, 0), ("b", 14, 1, 0))
    victims = {"n": meta("cpu-hog", "a", "b", violations=2)}
    assert await ask(extender, pod("p", 8, priority=10), victims) == {"n": ["cpu-hog", "a"]}


async def test_all_victims_stay_where_gpus_are_not_the_trouble(
    cluster: FakeApiServer, extender: Running
) -> None:
    """The pod fits its GPUs already, so the scheduler has another reason for each victim."""
    await run(cluster, extender, ("a", 4, 0, 0))
    assert await ask(extender, pod("p", 8, priority=10), {"n": meta("a")}) == {"n": ["a"]}


async def test_several_victims_of_one_gpu_are_the_fewest(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Three on a GPU, two must go: the one of highest priority that can stay, stays."""
    await run(cluster, extender, ("a", 5, 0, 1), ("b", 5, 0, 2), ("c", 5, 0, 3), ("k", 15, 1, 99))
    answer = await ask(extender, pod("p", 10, priority=10), {"n": meta("a", "b", "c")})
    assert answer == {"n": ["b", "a"]}


async def test_whole_pods_are_understood_too(cluster: FakeApiServer, extender: Running) -> None:
    """A scheduler without a node cache sends whole pods; the answer is by UID all the same."""
    items = await run(cluster, extender, ("a", 14, 0, 5), ("b", 14, 1, 3))
    victims = {"n": {"Pods": list(items.values()), "NumPDBViolations": 1}}
    body = {"Pod": pod("p", 8, priority=10), "NodeNameToVictims": victims}
    _, answer = await extender.post(PATH, body)
    expected = {"n": {"Pods": [{"UID": "b"}], "NumPDBViolations": 1}}
    assert answer == {"NodeNameToMetaVictims": expected}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"Pod": 3, "NodeNameToMetaVictims": {}}'])
async def test_what_cannot_be_read_evicts_nobody(extender: Running, body: bytes) -> None:
    """An empty answer: the scheduler then preempts nowhere."""
    assert await extender.post(PATH, body) == (200, {"NodeNameToMetaVictims": {}})


async def test_a_pod_that_requests_no_gpu_keeps_the_schedulers_choice(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Not our resources, not our check."""
    await run(cluster, extender, ("a", 4, 0, 0))
    assert await ask(extender, pod("p"), {"n": meta("a", "x")}) == {"n": ["a", "x"]}
