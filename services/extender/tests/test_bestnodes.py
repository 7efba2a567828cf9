"""Filter answers with the best nodes by the GPU policy, so that no other score decides."""

import json
from typing import Any

import pytest
from decoded import a_node, a_pod, best_of, encoded, state_of
from objects import Object, node, placed, pod, whole_node

from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName
from gpucore.wire.names import LABEL_PLACEMENT
from gpucore.wire.node.spec import decode_node
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.filter import Filter
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State
from gpukube.testing.scripted import ScriptedClient

USED = {"n0": 0, "n1": 1, "n2": 4, "n3": 4, "n4": 2}
"""Units in use of 8 on each of these nodes."""
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SOFT: dict[str, Object] = {
    "preferred node affinity": {
        "affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}
    },
    "preferred inter-pod anti-affinity": {
        "affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}
    },
    "preferred inter-pod affinity": {
        "affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}
    },
    "topology spread": {
        "topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]
    },
}


def cluster(**used: int) -> State:
    """Nodes with one GPU of 8 units each, of which so many are in use."""
    state = state_of(*(a_node(name, 8) for name in used))
    for name, units in used.items():
        if units:
            state.pod_changed(a_pod(placed(pod(f"on-{name}", units), name, 0)))
    return state


async def candidates(state: State, item: Object, limit: int = 1, policy: str = "binpack") -> Any:
    """Names in the reply of filter to a call with all nodes."""
    cache = NodeCache(state.ledger)
    gangs = Gangs(state, Rules())
    requeue = Requeue(state, ScriptedClient(), gangs)
    called = Filter(state, gangs, cache, requeue, best_of(state, cache, limit, policy))
    names = sorted(state.ledger.nodes(), reverse=True)
    found = await called.filter(json.dumps({"Pod": item, "NodeNames": names}).encode())
    assert not found.error
    assert not found.failed_nodes
    return json.loads(bytes(found.node_names))


@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [
        ("binpack", 1, ["n2"]),
        ("spread", 1, ["n0"]),
        ("fragmentation", 1, ["n1"]),
        ("binpack", 3, ["n2", "n3", "n4"]),
        ("spread", 2, ["n0", "n1"]),
        ("binpack", 0, ["n4", "n3", "n2", "n1", "n0"]),
        ("binpack", 9, ["n4", "n3", "n2", "n1", "n0"]),
    ],
)
async def test_the_best_by_the_policy_remain(policy: str, limit: int, expected: list[str]) -> None:
    """Of equally good nodes the first by name; in any order, for the scheduler scores them."""
    found = await candidates(cluster(**USED), pod("p", 2), limit, policy)
    assert sorted(found) == sorted(expected)
    assert limit or found == expected


async def test_the_policy_of_the_pod_overrules_the_default() -> None:
    """As for the choice of the GPU."""
    item = pod("p", 2, annotations={"gpushare/policy": "spread"})
    assert await candidates(cluster(**USED), item) == ["n0"]


@pytest.mark.parametrize("spec", SOFT.values(), ids=SOFT)
async def test_a_pod_with_preferences_of_its_own_keeps_all_nodes(spec: Object) -> None:
    """kube-scheduler weighs them; the extender does not read what they prefer."""
    item = pod("p", 2)
    item["spec"] |= spec
    assert len(await candidates(cluster(**USED), item)) == len(USED)


async def test_a_node_that_is_to_be_avoided_comes_last() -> None:
    """A PreferNoSchedule taint counts before the policy, unless the pod tolerates it."""
    state = cluster(**USED)
    tainted = node("n2", 8, unit="GiB")
    tainted["spec"] = {"taints": [{"key": "old", "effect": "PreferNoSchedule"}]}
    state.node_changed(decode_node(encoded(tainted)))
    assert await candidates(state, pod("p", 2)) == ["n3"]
    tolerant = pod("p", 2)
    tolerant["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert await candidates(state, tolerant) == ["n2"]
    assert await candidates(state, pod("p", 2), 9) == ["n4", "n3", "n2", "n1", "n0"]
    state.node_gone(NodeName("n2"))
    assert not state.candidates.avoided


async def test_exclusive_gpus_and_compute_go_by_the_policy_too() -> None:
    """Requests for which no ratings of all amounts are kept."""
    assert await candidates(cluster(a=0, b=3), pod("p", 2, core=10)) == ["b"]
    wholes = {
        name: decode_node(encoded(whole_node(name, gpus))) for name, gpus in (("a", 3), ("b", 2))
    }
    assert await candidates(state_of(*wholes.values()), pod("q", gpus=1)) == ["b"]
    assert await candidates(state_of(*wholes.values()), pod("q", gpus=1), policy="spread") == ["a"]


async def test_a_node_with_a_policy_of_its_own_is_rated_as_the_others_are() -> None:
    """Its rating does not follow from the amount alone; it is not the worst of all for that."""
    state = cluster(**USED)
    own = node("n2", 8, unit="GiB", **{LABEL_PLACEMENT: "fragmentation"})
    state.node_changed(decode_node(encoded(own)))
    assert await candidates(state, pod("p", 2), 2) == ["n3", "n2"]
