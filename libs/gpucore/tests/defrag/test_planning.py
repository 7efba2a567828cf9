"""Which pods are evicted for a waiting pod: the fewest, within all limits, and only for a fit."""

import hypothesis.strategies as st
import msgspec
import pytest
from defragclusters import held, state, waits
from hypothesis import given, settings

from gpucore.defrag.budgets import Allowance, Budgets, PastEviction, recent
from gpucore.defrag.planning import NO_PLAN, EvictionPlan, find_plan, simulate
from gpucore.defrag.pods import DefragPod, DefragState, is_leaving
from gpucore.model.constraints import UNCONSTRAINED, PodConstraints
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.controllers import Controller

FREE = Allowance(Budgets())
ACROSS = Budgets(across_namespaces=True)
VICTIM = PodUid("victim")
YEAR = 31_536_000
NOW = 1_800_000_000.0


def scattered(*more: DefragPod, **of_small: object) -> DefragState:
    """12 units are free on no GPU, but would be once ``small`` went to another one."""
    return state(
        ("n1", "n2"),
        held("big", 10, "n1", 0, obstacle="stays"),
        held("small", 6, "n1", 1, **of_small),
        held("x", 9, "n2", 0, obstacle="stays"),
        held("y", 9, "n2", 1, obstacle="stays"),
        *(more or (waits("w", 12),)),
    )


def names(plan: EvictionPlan | None) -> list[str]:
    """The evicted pods."""
    return [one.pod.name for one in plan.evictions] if plan else []


def test_the_fewest_pods_are_evicted_and_each_has_another_place() -> None:
    """One small pod leaves; what-if places the waiting pod and the pod that replaces it."""
    plan = find_plan(scattered(), FREE).plan
    assert plan is not None
    assert names(plan) == ["small"]
    assert (plan.placement.node, dict(plan.placement.mem)) == ("n1", {1: 12})
    assert plan.evictions[0].to.node in {"n1", "n2"}


def test_a_pod_that_fits_has_nobody_evicted() -> None:
    """Its scheduler only has to try it."""
    found = find_plan(scattered(waits("w", 7)), FREE)
    assert found.plan is None
    assert found.reasons["w"].startswith("it fits node n")


@pytest.mark.parametrize("leaving", ["small", "y"], ids=["of the plan", "another"])
def test_a_pod_that_fits_once_deleted_pods_are_gone_has_nobody_evicted(leaving: str) -> None:
    """The capacity is free soon without an eviction."""
    node = NodeName("n1" if leaving == "small" else "n2")
    held_by = msgspec.structs.replace(scattered(), leaving={PodUid(leaving): node})
    found = find_plan(held_by, FREE)
    assert found.plan is None
    assert found.reasons == {
        "w": f"it fits node {node} once the pods that are being deleted there are gone"
    }


def test_a_deleted_pod_whose_end_is_not_enough_stops_no_plan() -> None:
    """The pods that stay on its node hold too much; the plan is the one without it."""
    cluster = scattered(held("tiny", 1, "n2", 1, obstacle="it is not running"), waits("w", 12))
    leaving = {PodUid("tiny"): NodeName("n2")}
    found = find_plan(msgspec.structs.replace(cluster, leaving=leaving), FREE)
    assert names(found.plan) == ["small"]


def test_a_pod_whose_scheduler_preempts_has_nobody_evicted() -> None:
    """A victim leaves the nominated node; the reason is of that pod alone, not of its kind."""
    preempting = waits("w", 12, nominated=NodeName("n2"))
    cluster = scattered(preempting, waits("w2", 12, creation="2026-01-06T00:00:00Z"))
    found = find_plan(msgspec.structs.replace(cluster, leaving={VICTIM: NodeName("n2")}), FREE)
    assert found.reasons["w"] == "its scheduler makes room for it on node n2 already"
    assert found.reasons["w2"] == NO_PLAN


@pytest.mark.parametrize(
    ("nominated", "leaves"),
    [("n2", ""), ("n2", "n1"), ("removed", "removed")],
    ids=["victims are gone", "a pod leaves another node", "the node is gone"],
)
def test_a_nomination_that_outlived_its_preemption_stops_no_plan(
    nominated: str, leaves: str
) -> None:
    """kube-scheduler may leave the name on the pod for ever."""
    cluster = scattered(waits("w", 12, nominated=NodeName(nominated)))
    leaving = {VICTIM: NodeName(leaves)} if leaves else {}
    found = find_plan(msgspec.structs.replace(cluster, leaving=leaving), FREE)
    assert names(found.plan) == ["small"]


@pytest.mark.parametrize(
    ("seconds", "leaving"),
    [
        (-YEAR, False),
        (-301, False),
        (-300, True),
        (0, True),
        (300, True),
        (301, False),
        (YEAR, False),
    ],
)
def test_a_deleted_pod_leaves_within_minutes_or_does_not_count(seconds: int, leaving: bool) -> None:
    """Neither a grace period of a year nor a pod that is stuck keeps capacity from others."""
    assert is_leaving(NOW + seconds, NOW) is leaving


@pytest.mark.parametrize(
    "fields",
    [
        {"namespace": "other"},
        {"priority": 1},
        {"obstacle": "its annotation gpushare/defrag is never"},
    ],
    ids=["other namespace", "higher priority", "opted out"],
)
def test_pods_that_may_not_be_evicted_stay(fields: dict[str, object]) -> None:
    """Not another namespace's pod, not one of higher priority, not one that opted out."""
    assert find_plan(scattered(**fields), FREE).plan is None


def test_an_operator_may_allow_other_namespaces() -> None:
    """Then pods of other namespaces move too, still none of a higher priority."""
    assert names(find_plan(scattered(namespace="other"), Allowance(ACROSS)).plan) == ["small"]
    above = scattered(namespace="other", priority=1)
    assert find_plan(above, Allowance(ACROSS)).plan is None


def test_exclusive_gpus_are_emptied() -> None:
    """All pods of a GPU leave for a pod that requests the GPU."""
    cluster = state(
        ("n1", "n2"),
        held("a", 4, "n1", 0),
        held("b", 3, "n1", 1),
        held("c", 2, "n1", 1),
        held("d", 3, "n2", 0),
        held("e", 1, "n2", 1),
        waits("w", 0, gpus=1),
    )
    assert names(find_plan(cluster, FREE).plan) == ["e"]


def test_two_pods_of_a_controller_do_not_leave_together() -> None:
    """So that a workload never loses two pods at once."""

    def with_owners(first: str, second: str) -> DefragState:
        return state(
            ("n1", "n2"),
            held("a", 15, "n1", 0),
            held("b", 8, "n1", 1, owner=first),
            held("c", 8, "n1", 1, owner=second),
            held("d", 8, "n2", 0, obstacle="stays"),
            held("e", 8, "n2", 1, obstacle="stays"),
            waits("w", 16),
        )

    assert names(find_plan(with_owners("one", "two"), FREE).plan) == ["b", "c"]
    assert find_plan(with_owners("same", "same"), FREE).plan is None


def test_a_pod_ahead_in_the_queue_that_would_take_the_room_spoils_the_plan() -> None:
    """What-if places the whole queue in its order, not the one pod alone."""
    ahead = waits("ahead", 11, priority=5, obstacle="it belongs to a gang")
    assert find_plan(scattered(ahead, waits("w", 12)), FREE).plan is None


def test_a_pod_that_no_scheduler_places_takes_no_room() -> None:
    """It would wait ahead of all others for ever, so no plan would ever hold."""
    ahead = waits("ahead", 12, priority=5, obstacle="no scheduler has this name", unseen=True)
    found = find_plan(scattered(ahead, waits("w", 12)), FREE)
    assert names(found.plan) == ["small"]
    assert found.reasons == {"ahead": "no scheduler has this name"}


@pytest.mark.parametrize(("choosy", "planned"), [("big", True), ("small", False)])
def test_replacements_come_in_the_order_of_the_evictions(choosy: str, *, planned: bool) -> None:
    """The larger pod is evicted first, so its replacement may take the only place of the other."""
    needs_n2 = PodConstraints(node_selector=(("name", "n2"),))
    pods = [
        held(
            name,
            units,
            "n1",
            0,
            creation=creation,
            constraints=needs_n2 if name == choosy else UNCONSTRAINED,
        )
        for name, units, creation in (
            ("big", 8, "2026-01-02T00:00:00Z"),
            ("small", 6, "2026-01-01T00:00:00Z"),
        )
    ]
    stays = [
        held(f"{node}-{gpu}", units, node, gpu, obstacle="stays")
        for node, gpu, units in (
            ("n1", 0, 2),
            ("n1", 1, 16),
            ("n2", 0, 8),
            ("n2", 1, 16),
            ("n3", 0, 8),
            ("n3", 1, 16),
        )
    ]
    cluster = state(("n1", "n2", "n3"), *pods, *stays, waits("w", 14))
    nodes = {
        name: msgspec.structs.replace(node, labels={"name": name})
        for name, node in cluster.nodes.nodes.items()
    }
    cluster = msgspec.structs.replace(
        cluster, nodes=msgspec.structs.replace(cluster.nodes, nodes=nodes)
    )
    plan = find_plan(cluster, FREE).plan
    assert (plan is not None) == planned
    if plan is not None:
        assert [(one.pod.name, one.to.node) for one in plan.evictions] == [
            ("big", "n2"),
            ("small", "n3"),
        ]


@pytest.mark.parametrize(("kind", "planned"), [("StatefulSet", True), ("ReplicaSet", False)])
def test_no_pod_is_evicted_whose_replacement_takes_the_room(kind: str, *, planned: bool) -> None:
    """A ReplicaSet creates it at once: it is placed on the same GPU, beside its predecessor."""
    cluster = state(
        ("n1", "n2"),
        held("stays", 4, "n1", 0, obstacle="stays"),
        held("full", 16, "n1", 1, obstacle="stays"),
        held("small", 6, "n1", 0, controller=Controller(kind=kind, name="rs-small")),
        held("x", 9, "n2", 0, obstacle="stays"),
        held("y", 9, "n2", 1, obstacle="stays"),
        waits("w", 12),
    )
    found = find_plan(cluster, FREE)
    assert names(found.plan) == (["small"] if planned else [])
    if not planned:
        assert found.reasons == {"w": NO_PLAN}


@pytest.mark.parametrize(("kind", "planned"), [("ReplicaSet", True), ("StatefulSet", False)])
def test_a_replacement_may_come_before_the_next_pod_has_ended(kind: str, *, planned: bool) -> None:
    """That of a StatefulSet takes the place of its predecessor, for the waiting pod needs both."""
    leaving = [
        held(name, 8, "n1", 1, controller=Controller(kind=kind, name=f"rs-{name}"))
        for name in ("b", "c")
    ]
    cluster = state(
        ("n1", "n2"),
        held("a", 15, "n1", 0),
        *leaving,
        held("d", 8, "n2", 0, obstacle="stays"),
        held("e", 8, "n2", 1, obstacle="stays"),
        waits("w", 16),
    )
    assert names(find_plan(cluster, FREE).plan) == (["b", "c"] if planned else [])


def test_budgets_hold_over_runs() -> None:
    """Evictions of the last hour count, whoever requested them."""
    past = PastEviction(100, NodeName("n9"), "team", PodUid("p"), "rs", PodUid("v"), "team")
    assert find_plan(scattered(), Allowance(Budgets(total=1))).plan is not None
    for budgets in (Budgets(total=1), Budgets(per_namespace=1)):
        assert find_plan(scattered(), Allowance(budgets, [past])).plan is None
    there = msgspec.structs.replace(past, node=NodeName("n1"))
    assert find_plan(scattered(), Allowance(Budgets(per_node=1), [there])).plan is None
    assert find_plan(scattered(), Allowance(Budgets(per_node=1), [past])).plan is not None


def test_neither_a_served_pod_nor_a_disturbed_workload_comes_again() -> None:
    """A pod that another one overtakes does not have pods evicted again and again."""
    past = PastEviction(100, NodeName("n9"), "x", PodUid("p"), "rs", PodUid("w"), "y")
    assert find_plan(scattered(), Allowance(Budgets(), [past])).plan is None
    lost = msgspec.structs.replace(past, waiting=PodUid("v"), owner="rs-small")
    assert find_plan(scattered(), Allowance(Budgets(), [lost])).plan is None


def test_the_history_is_that_of_the_last_hour() -> None:
    """Older evictions no longer count; those of a clock ahead do."""
    past = PastEviction(100, NodeName("n"), "x", PodUid("p"), "rs", PodUid("w"), "y")
    assert recent([past], 3699) == (past,)
    assert recent([past], 3700) == ()
    assert recent([past], 50) == (past,)


@st.composite
def clusters(draw: st.DrawFn) -> DefragState:
    """Three nodes with running pods that fit, and pending pods."""
    room = {(node, gpu): 16 for node in ("n1", "n2", "n3") for gpu in (0, 1)}
    pods = []
    namespaces, priorities = st.sampled_from(("team", "other")), st.integers(0, 2)
    for number in range(draw(st.integers(2, 12))):
        place = draw(st.sampled_from(sorted(room)))
        units = draw(st.integers(1, 9))
        if units > room[place]:
            continue
        room[place] -= units
        pods.append(
            held(
                f"p{number}",
                units,
                *place,
                namespace=draw(namespaces),
                priority=draw(priorities),
                owner=draw(st.sampled_from((f"rs{number}", "shared"))),
                obstacle=draw(st.sampled_from(("", "", "", "stays"))),
            )
        )
    for number in range(draw(st.integers(1, 3))):
        units = draw(st.integers(8, 16))
        gpus = draw(st.sampled_from((0, 0, 1)))
        pods.append(
            waits(
                f"w{number}",
                0 if gpus else units,
                gpus=gpus,
                namespace=draw(namespaces),
                priority=draw(priorities),
            )
        )
    return state(("n1", "n2", "n3"), *pods)


@pytest.mark.slow
@settings(max_examples=300)
@given(clusters(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_no_plan_breaks_a_rule(
    cluster: DefragState, total: int, per_node: int, per_namespace: int, across: bool
) -> None:
    """Whatever the cluster: rights, budgets, and a place for everybody afterwards."""
    budgets = Budgets(total, per_node, per_namespace, across)
    plan = find_plan(cluster, Allowance(budgets)).plan
    if plan is None:
        return
    evicted = [one.pod for one in plan.evictions]
    assert 0 < len(evicted) <= min(total, per_node, per_namespace)
    assert len({pod.node for pod in evicted}) == 1
    assert len({pod.owner for pod in evicted}) == len(evicted)
    for pod in evicted:
        assert not pod.obstacle
        assert pod.priority <= plan.waiting.priority
        assert across or pod.namespace == plan.waiting.namespace
    assert not any(
        cluster.nodes.refusal(name, plan.waiting.requirements) is None
        for name in cluster.nodes.nodes
    )
    uids = [pod.uid for pod in evicted]
    placed = simulate(cluster, plan.waiting, uids, evicted)
    assert placed is not None
    assert set(placed) == {plan.waiting.uid, *uids}
