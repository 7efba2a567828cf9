"""preempt for pods of a gang: nobody is evicted; of a PodGroup that ends whole, all or none."""

import pytest
from decoded import a_node, a_pod, state_of
from objects import node, placed, pod
from preempting import answer
from running import Running

from gpucore.wire.pod_groups import PodGroup
from gpuextender.scheduling.preempt import Preempt
from gpuextender.state import State
from gpukube.testing.apiserver import FakeApiServer

PATH = "/gpushare-scheduler/preempt"
GANG = {"gpu-topology": "train", "gpu-topology-replica": "2"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "evicted"), [(GANG, {}), ({}, {"n": ["a"]})], ids=["gang", "alone"]
)
async def test_a_pod_of_a_gang_evicts_nobody(
    cluster: FakeApiServer, extender: Running, labels: dict[str, str], evicted: dict[str, list[str]]
) -> None:
    """Room for one of its pods does not mean room for the others; the same pod alone evicts."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await extender.knows_node("n")
    await cluster.put("pods", placed(pod("a", 10, uid="a", priority=0), "n", 0))
    await extender.knows_pod("a")
    pending = pod("p", 10, priority=10)
    pending["metadata"]["labels"] = labels
    victims = {"n": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}
    body = {"Pod": pending, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    code, answer = await extender.post(PATH, body)
    assert code == 200
    nodes = answer["NodeNameToMetaVictims"]
    assert {name: [one["UID"] for one in each["Pods"]] for name, each in nodes.items()} == evicted


def running_group(*nodes: str, whole: bool = True) -> State:
    """A node of three GPUs and another; a pod ``g<number>`` of a PodGroup on each of ``nodes``."""
    state = state_of(a_node("n", 15, 15, 15), a_node("m", 15))
    state.gangs.groups.on_update(PodGroup("default", "g", 2, disrupted_whole=whole))
    for number, name in enumerate(nodes):
        item = pod(f"g{number}", 15, uid=f"g{number}")
        item["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        state.pod_changed(a_pod(placed(item, name, number if name == "n" else 0)))
    state.pod_changed(a_pod(placed(pod("a", 15, uid="a"), "n", 2)))
    return state


def evicted(state: State, *victims: str, gpus: int = 1) -> list[str]:
    """The victims on node ``n`` for a pod that needs so many of its GPUs."""
    listed = {"n": {"Pods": [{"UID": name} for name in victims], "NumPDBViolations": 0}}
    labels = {"aliyun.com/gpu-count": str(gpus)}
    pending = pod("p", 15 * gpus, priority=10, labels=labels)
    body = {"Pod": pending, "NodeNameToMetaVictims": listed}
    found = answer(Preempt(state), body).node_name_to_meta_victims
    return [one.uid for one in found["n"].pods] if "n" in found else []


def test_a_group_that_ends_as_a_whole_is_evicted_as_a_whole() -> None:
    """One GPU is needed, and both pods of the group go."""
    assert evicted(running_group("n", "n"), "g0", "g1") == ["g0", "g1"]


def test_a_group_whose_pods_end_one_by_one_loses_those_that_are_needed() -> None:
    """The default of a PodGroup."""
    assert len(evicted(running_group("n", "n", whole=False), "g0", "g1")) == 1


def test_a_group_on_several_nodes_is_not_evicted_in_part() -> None:
    """kube-scheduler could not evict the pod of the other node, so the group stays."""
    assert evicted(running_group("n", "m"), "g0", "g1") == []


def test_a_pod_beside_a_group_is_evicted_alone() -> None:
    """The group is not needed."""
    assert evicted(running_group("n", "n"), "a") == ["a"]


def test_a_group_of_which_the_scheduler_names_a_part_stays() -> None:
    """Evicting that part and the pod beside it would leave the rest of the group running."""
    state = running_group("n", "n")
    assert evicted(state, "g0", "a", gpus=2) == []
    assert evicted(state, "g0", "g1", "a", gpus=3) == ["g0", "g1", "a"]


def test_victims_beside_a_group_keep_the_order_of_the_scheduler() -> None:
    """It compares the priority of the PodGroup, which the extender does not read."""
    state = running_group("n", "n")
    state.pod_changed(a_pod(placed(pod("a", 15, uid="a", priority=9), "n", 2)))
    assert evicted(state, "g0", "g1", "a", gpus=3) == ["g0", "g1", "a"]


def test_a_group_that_may_end_in_parts_again_is_read_anew() -> None:
    """The PodGroup was deleted and made again with the default."""
    state = running_group("n", "n")
    state.gangs.groups.on_delete(PodGroup("default", "g", 2, disrupted_whole=True))
    assert len(evicted(state, "g0", "g1")) == 1
