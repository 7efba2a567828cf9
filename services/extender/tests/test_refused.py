"""What is remembered of refused pods and of changed nodes, call by call."""

import pytest
from decoded import a_pod
from hypothesis import given
from hypothesis import strategies as st
from objects import pod

from gpucore.model import ContainerRequest, PodRequest
from gpucore.scheduling import requeue as refused
from gpucore.scheduling.requeue import RefusedPod, RefusedPods, RememberedPod
from gpucore.units import NodeName, PodUid

DEMAND = PodRequest((ContainerRequest(2),), mem=2)


NODES = [NodeName(f"n{number}") for number in range(9)]


def pods_of_nodes() -> RefusedPods:
    """No pods, and nodes ``n0`` to ``n8``; nine changes."""
    pods = RefusedPods()
    for node in NODES:
        pods.node_changed(node, exists=True)
    return pods


def remember(
    pods: RefusedPods,
    name: str,
    *numbers: int,
    judged: int = 0,
    priority: int = 0,
    age: str = "",
    namespace: str = "default",
) -> RememberedPod:
    """Remember a pod that the nodes of these numbers refused."""
    nodes = [NODES[number] for number in numbers]
    one = RefusedPod(PodUid(name), DEMAND, priority, age)
    item = a_pod(pod(name, 2, uid=name, namespace=namespace))
    return pods.remember(item, one, nodes, judged=judged)


def names(pods: RefusedPods) -> list[str]:
    """The remembered pods, in the order in which they are tried."""
    return [entry.refused.uid for entry in pods.ranked()]


def test_a_new_entry_has_no_history() -> None:
    """It has the pod, what it requests, and the change up to which it was judged."""
    pods = RefusedPods()
    assert (len(pods), pods.change, pods.members_changed) == (0, 0, 0)
    entry = remember(pods, "p", 1, judged=7)
    assert (entry.pod.name, entry.refused.uid, entry.judged) == ("p", "p", 7)
    assert (entry.wakeups, entry.not_before, entry.incomplete) == (0, 0.0, False)
    assert len(pods) == 1
    assert pods.ranked() == [entry]


def test_only_the_nodes_that_were_offered_are_marked() -> None:
    """Nodes between them and beyond them are not."""
    pods = pods_of_nodes()
    entry = remember(pods, "p", 2, 5, judged=9)
    assert [node for node in NODES if pods.was_offered(entry, node)] == ["n2", "n5"]
    assert pods.offered(entry) == ["n2", "n5"]


def test_a_pod_without_nodes_was_offered_none() -> None:
    """A scheduler may ask about no node at all."""
    pods = pods_of_nodes()
    entry = remember(pods, "p", judged=9)
    assert not any(pods.was_offered(entry, node) for node in NODES)


def test_a_node_that_came_since_the_judgement_counts_as_offered() -> None:
    """The scheduler may have had it before; its later changes, or its end, are no arrival."""
    pods = pods_of_nodes()
    new = NodeName("new")
    entry = remember(pods, "p", 2, judged=9)
    pods.node_changed(new, exists=True)
    pods.node_changed(NODES[3], exists=True)
    assert pods.offered(entry) == ["n2", "new"]
    assert pods.was_offered(entry, new)
    entry.judged = pods.change
    pods.node_changed(new, exists=True)
    assert pods.offered(entry) == ["n2"]
    pods.node_changed(new, exists=False)
    pods.node_changed(new, exists=True)
    assert pods.offered(entry) == ["n2", "new"]


def test_a_second_refusal_keeps_the_wait_and_replaces_the_rest() -> None:
    """The pod waits as long as before; nodes, change and the gang's state are the new ones."""
    pods = pods_of_nodes()
    first = remember(pods, "p", 1, judged=9)
    first.wakeups, first.not_before, first.incomplete = 3, 12.5, True
    second = remember(pods, "p", 2, judged=10)
    assert (second.wakeups, second.not_before) == (3, 12.5)
    assert (second.judged, second.incomplete) == (10, False)
    assert pods.offered(second) == ["n2"]
    assert pods.ranked() == [second]


def test_a_pod_that_was_forgotten_begins_anew() -> None:
    """It fitted somewhere meanwhile, so its next wait is the shortest; forgetting twice is fine."""
    pods = RefusedPods()
    remember(pods, "p", 1).wakeups = 3
    pods.forget(PodUid("p"))
    pods.forget(PodUid("p"))
    assert (len(pods), pods.ranked()) == (0, [])
    assert remember(pods, "p", 1).wakeups == 0


def test_the_pod_that_was_refused_least_recently_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as the limit are kept; a pod that is refused again counts as recent."""
    monkeypatch.setattr(refused, "REMEMBERED", 2)
    pods = RefusedPods()
    for name in ("x", "y", "x"):
        remember(pods, name, 1)
    assert sorted(names(pods)) == ["x", "y"]
    remember(pods, "z", 1)
    assert sorted(names(pods)) == ["x", "z"]
    assert refused.REMEMBERED == 2


def test_a_tenant_with_many_refused_pods_drops_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were refused before it stay, however old they are."""
    monkeypatch.setattr(refused, "REMEMBERED", 4)
    pods = RefusedPods()
    remember(pods, "theirs", namespace="other")
    for number in range(9):
        remember(pods, f"p{number}", namespace="tenant")
    assert sorted(names(pods)) == ["p6", "p7", "p8", "theirs"]
    remember(pods, "more", namespace="other")
    assert sorted(names(pods)) == ["more", "p7", "p8", "theirs"]


@given(
    share=st.integers(1, 3),
    calls=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.booleans())),
)
def test_a_namespace_within_its_share_loses_no_pod(
    share: int, calls: list[tuple[str, int, bool]]
) -> None:
    """Of the others the pods that were refused last are left, and the limit holds."""
    pods = RefusedPods()
    recent: dict[str, dict[str, None]] = {namespace: {} for namespace in "abc"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, "REMEMBERED", share * len(recent))
        for namespace, number, gone in calls:
            name, order = f"{namespace}{number}", recent[namespace]
            order.pop(name, None)
            if gone:
                pods.forget(PodUid(name))
            else:
                order[name] = None
                remember(pods, name, namespace=namespace)
            left = names(pods)
            assert len(left) == len(pods) <= share * len(recent)
            for waiting in map(list, recent.values()):
                kept = [name for name in waiting if name in left]
                assert kept == waiting[len(waiting) - len(kept) :]
                assert len(kept) >= min(len(waiting), share)


def test_thousands_of_pods_are_remembered() -> None:
    """The limit bounds memory, and is above what clusters have waiting."""
    assert refused.REMEMBERED == 4096


def test_pods_are_tried_by_priority_and_then_by_age() -> None:
    """Whatever the order of their refusals."""
    pods = RefusedPods()
    remember(pods, "young", 1, priority=5, age="2026-01-02T00:00:00Z")
    remember(pods, "old", 1, priority=5, age="2026-01-01T00:00:00Z")
    remember(pods, "low", 1, priority=1, age="2025-01-01T00:00:00Z")
    remember(pods, "high", 1, priority=9, age="2026-01-03T00:00:00Z")
    assert names(pods) == ["high", "old", "young", "low"]


def test_every_change_is_counted_once() -> None:
    """Nodes and new pods share one counter; only a new pod counts for gangs."""
    pods = RefusedPods()
    pods.node_changed(NODES[3], exists=True)
    pods.node_changed(NODES[3], exists=True)
    assert (pods.change, pods.members_changed) == (2, 0)
    pods.member_came()
    assert (pods.change, pods.members_changed) == (3, 3)
    pods.node_changed(NODES[1], exists=False)
    assert (pods.change, pods.members_changed) == (4, 3)


def test_changed_nodes_are_those_since_the_oldest_judgement() -> None:
    """The last change first, each node once; what the oldest refusal has seen is left out."""
    pods = RefusedPods()
    for number in (1, 2, 3, 1):
        pods.node_changed(NODES[number], exists=True)
    remember(pods, "new", 1, judged=4)
    assert list(pods.changed_nodes()) == []
    remember(pods, "old", 1, judged=2)
    assert list(pods.changed_nodes()) == [("n1", 4), ("n3", 3)]
    remember(pods, "oldest", 1, judged=0)
    assert list(pods.changed_nodes()) == [("n1", 4), ("n3", 3), ("n2", 2)]


def test_without_pods_no_node_is_of_interest() -> None:
    """There is nobody whom a change could help."""
    pods = RefusedPods()
    pods.node_changed(NODES[1], exists=True)
    assert list(pods.changed_nodes()) == []


def test_a_node_that_is_gone_is_of_no_interest() -> None:
    """Its change counts, but there is nothing to place on it."""
    pods = RefusedPods()
    pods.node_changed(NODES[1], exists=True)
    pods.node_changed(NODES[1], exists=False)
    remember(pods, "p", 1)
    assert list(pods.changed_nodes()) == []
    assert pods.change == 2
