"""A plan is judged again before every eviction, on the cluster as it is then."""

import msgspec
import pytest
from defragclusters import held, state, waits

from gpucore.defrag.budgets import Allowance, Budgets
from gpucore.defrag.planning import EvictionPlan, find_plan
from gpucore.defrag.pods import DefragPod, DefragState
from gpucore.defrag.progress import check_plan
from gpucore.model.constraints import PODS
from gpucore.units import NodeName, PodUid

W = waits("w", 16)
A = held("a", 15, "n1", 0)
B, C = held("b", 8, "n1", 1), held("c", 8, "n1", 1)
D, E = held("d", 8, "n2", 0, obstacle="stays"), held("e", 8, "n2", 1, obstacle="stays")


def cluster(*pods: DefragPod) -> DefragState:
    """Both nodes with these pods."""
    return state(("n1", "n2"), *pods)


def plan() -> EvictionPlan:
    """Evicts b, then c."""
    found = find_plan(cluster(A, B, C, D, E, W), Allowance(Budgets())).plan
    assert found is not None
    assert [one.pod.name for one in found.evictions] == ["b", "c"]
    return found


def test_an_unchanged_cluster_goes_on() -> None:
    """Nothing stands against the first eviction."""
    assert check_plan(plan(), (), cluster(A, B, C, D, E, W)) == ""


def test_it_goes_on_while_the_replacement_is_missing_pending_or_placed() -> None:
    """The evicted pod counts as gone although it is still being deleted."""
    dying = msgspec.structs.replace(B, obstacle="it is not running")
    gone = {PodUid("b")}
    for after in ([], [waits("b2", 8, owner="rs-b")], [held("b2", 8, "n2", 0, owner="rs-b")]):
        now = cluster(A, dying, C, D, E, W, *after)
        pods_of = dict(now.pods_of) | {"rs-b": len(after)}
        now = msgspec.structs.replace(now, pods_of=pods_of)
        assert check_plan(plan(), gone, now) == "", after


def test_it_stops_when_the_waiting_pod_is_gone_or_fits() -> None:
    """Then no further pod is evicted in vain."""
    reason = check_plan(plan(), (), cluster(A, B, C, D, E))
    assert reason == "team/w does not wait any more"
    found = check_plan(plan(), {PodUid("b")}, cluster(A, D, E, W))
    assert found == "team/w fits already"


@pytest.mark.parametrize("bound", [False, True])
def test_an_evicted_pod_gets_its_place_although_the_waiting_pod_has_one(*, bound: bool) -> None:
    """The waiting pod fits after the first eviction; the evicted pod does after the second one."""
    big, small = held("big", 8, "n1", 0), held("small", 2, "n1", 0)
    others = (
        held("q", 8, "n1", 1, obstacle="stays"),
        held("r", 14, "n2", 0, obstacle="stays"),
        held("s", 16, "n2", 1, obstacle="stays"),
    )
    wanted = waits("w", 12)
    found = find_plan(with_three_pods(big, small, *others, wanted), Allowance(Budgets())).plan
    assert found is not None
    assert [one.pod.name for one in found.evictions] == ["big", "small"]
    again = waits("big2", 8, owner="rs-big", creation="2026-01-09T00:00:00Z")
    served = held("w", 12, "n1", 0, uid=PodUid("w")) if bound else wanted
    now = with_three_pods(small, *others, served, again)
    assert check_plan(found, {PodUid("big")}, now) == ""


def test_a_pod_that_waited_before_is_no_replacement() -> None:
    """The controller of an evicted pod has another one, which fits nowhere before or after."""
    extra = waits("extra", 16, owner="rs-b", creation="2026-01-06T00:00:00Z")
    dying = msgspec.structs.replace(B, obstacle="it is not running")
    found = find_plan(cluster(A, B, C, D, E, W, extra), Allowance(Budgets())).plan
    assert found is not None
    now = cluster(A, dying, C, D, E, W, extra, waits("b2", 8, owner="rs-b", creation="2026-02-01"))
    assert check_plan(found, {PodUid("b")}, msgspec.structs.replace(now, pods_of={"rs-b": 2})) == ""


def test_it_stops_where_a_replacement_that_waits_would_take_the_room() -> None:
    """Its predecessor is gone, and the waiting pod does not fit before the next eviction."""
    now = cluster(A, C, D, E, W, waits("b2", 8, owner="rs-b", creation="2026-01-09T00:00:00Z"))
    found = check_plan(plan(), {PodUid("b")}, now)
    assert found == "what-if does not place every pod of the plan any more"


def with_three_pods(*pods: DefragPod) -> DefragState:
    """Both nodes, of which n1 takes three pods."""
    found = cluster(*pods)
    nodes = dict(found.nodes.nodes)
    nodes[NodeName("n1")] = msgspec.structs.replace(nodes[NodeName("n1")], allocatable={PODS: 3})
    return msgspec.structs.replace(found, nodes=msgspec.structs.replace(found.nodes, nodes=nodes))


def test_it_stops_when_a_pod_of_the_plan_is_another_or_elsewhere() -> None:
    """A pod of the same name with another UID is another pod."""
    other = held("c2", 8, "n1", 1)
    assert check_plan(plan(), (), cluster(A, B, other, D, E, W)) == "team/c is gone"
    moved = cluster(held("a", 15, "n2", 0), B, held("c", 8, "n1", 0), E, W)
    assert check_plan(plan(), (), moved) == "team/c has other GPUs than planned"
    stays = msgspec.structs.replace(held("c", 8, "n1", 1), obstacle="its annotation is never")
    assert check_plan(plan(), (), cluster(A, B, stays, D, E, W)).startswith("team/c stays")


def test_it_stops_when_somebody_took_the_places() -> None:
    """No pod is evicted whose replacement would wait."""
    taken = held("new", 8, "n2", 0)
    full = held("more", 8, "n2", 1)
    found = check_plan(plan(), (), cluster(A, B, C, D, E, taken, full, W))
    assert found == "what-if does not place every pod of the plan any more"


def test_it_stops_when_the_scheduler_preempts_for_the_waiting_pod() -> None:
    """The room that its victims leave needs no further eviction."""
    now = preempting({PodUid("b"): NodeName("n1"), PodUid("victim"): NodeName("n1")})
    found = check_plan(plan(), {PodUid("b")}, now)
    assert found.startswith("team/w needs no eviction: its scheduler makes room for it")


def test_its_own_evictions_are_no_preemption() -> None:
    """A nomination that is out of date names the node of the plan, which the evicted pod leaves."""
    now = preempting({PodUid("b"): NodeName("n1")})
    assert check_plan(plan(), {PodUid("b")}, now) == ""


def preempting(leaving: dict[PodUid, NodeName]) -> DefragState:
    """``w`` is nominated to n1, where b was evicted, and these pods leave."""
    dying = msgspec.structs.replace(B, obstacle="it is not running")
    waiting = msgspec.structs.replace(W, nominated=NodeName("n1"))
    now = cluster(A, dying, C, D, E, waiting)
    return msgspec.structs.replace(now, leaving=leaving, pods_of=dict(now.pods_of) | {"rs-b": 0})
