"""Reservations are for pods that exist, and a namespace cannot hold GPUs in vain for ever."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.ledger import Ledger
from gpucore.explain.gangs import gang_sentence
from gpucore.gang.members import (
    LIMIT_SECONDS,
    MOST_RESERVED,
    RECOVERY,
    Member,
    Members,
    NamespaceTime,
    Postponed,
    kind_of,
    member_of,
    members_of,
)
from gpucore.gang.placement import place_gang
from gpucore.gang.values import GangPlacement
from gpucore.model import Allocation
from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import decode_pod as decode_with_constraints
from gpucore.wire.names import GANG_LABELS
from gpucore.wire.pod.gangs import Gang, gang_fault, gang_of, may_be_in_gang
from gpucore.wire.pod.spec import Pod, decode_pod

SECOND = 1_000_000_000
RULES = Rules()


def labelled(name: str, size: int, mem: int = 1, gang: str = "g") -> Pod:
    """A pod of a gang."""
    return pod(name, mem, labels={"gpu-topology": gang, "gpu-topology-replica": str(size)})


def as_member(item: Pod) -> Member:
    """The pod as a member of its gang."""
    found = member_of(item, NAMES)
    assert found is not None
    return found


@pytest.mark.parametrize("labels", GANG_LABELS)
def test_each_pair_of_labels_makes_a_gang(labels: tuple[str, str]) -> None:
    """The labels of arena's topology jobs, of its pod groups and of the vendor mean the same."""
    name, size = labels
    item = pod("p", 1, labels={name: "train", size: "3"})
    assert gang_of(item) == Gang("default", "train", 3)
    assert "3x" not in gang_fault(item)
    assert size in gang_fault(pod("p", 1, labels={name: "train", size: "3x"}))
    assert size in pod_request(pod("p", 1, labels={name: "train", size: "0"})).fault


def test_a_pod_group_without_a_size_is_no_gang() -> None:
    """Other schedulers take such a pod for one of its own; so does this one."""
    item = pod("p", 1, labels={"pod-group.scheduling.sigs.k8s.io/name": "train"})
    assert gang_of(item) is None
    assert pod_request(item).fault == ""


@pytest.mark.parametrize("labels", GANG_LABELS)
def test_a_pod_of_a_group_without_a_size_is_not_evicted_as_a_single_pod(
    labels: tuple[str, str],
) -> None:
    """How many pods wait for it is not known; with a size of 1 none do."""
    name, size = labels
    assert may_be_in_gang(pod("p", 1, labels={name: "train"}))
    assert may_be_in_gang(pod("p", 1, labels={name: "train", size: "2"}))
    assert not may_be_in_gang(pod("p", 1, labels={name: "train", size: "1"}))
    assert not may_be_in_gang(pod("p", 1))


def test_the_first_pair_of_labels_counts() -> None:
    """A job that carries both families is one gang, under the name of the topology labels."""
    item = labelled("p", 2)
    group = {"pod-group.scheduling.sigs.k8s.io/name": "x", GANG_LABELS[1][1]: "9"}
    both = msgspec.structs.replace(item, labels=item.labels | group)
    assert gang_of(both) == gang_of(item)


def test_owner_gates_and_nomination_are_read_from_the_pod() -> None:
    """What decides who is a member comes from fields that the API server checks."""
    raw = {
        "metadata": {
            "name": "p",
            "ownerReferences": [{"uid": "other"}, {"uid": "job", "controller": True}],
        },
        "spec": {"schedulingGates": [{"name": "g"}]},
        "status": {"nominatedNodeName": "n"},
    }
    found = decode_pod(msgspec.json.encode(raw))
    assert (found.owner, found.gated, found.nominated) == ("job", True, "n")
    bare = decode_pod(msgspec.json.encode({"metadata": {"name": "p"}}))
    assert (bare.owner, bare.gated, bare.nominated) == ("", False, "")


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"key": "spot", "operator": "Exists"}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_pods_that_kube_scheduler_offers_other_nodes_are_of_another_kind(
    spec: dict[str, object],
) -> None:
    """One cannot take the place of the other."""
    plain, other = (
        decode_with_constraints(msgspec.json.encode({"metadata": {"uid": "p"}, "spec": one}))
        for one in ({"containers": []}, {"containers": [], **spec})
    )
    assert kind_of(plain) == kind_of(plain)
    assert kind_of(plain) != kind_of(other)


def test_members_are_those_that_could_take_the_place() -> None:
    """Same request, owner and scheduler, no node, no place yet; the asking pod always counts."""
    asking = as_member(labelled("a", 9))
    replace = msgspec.structs.replace
    others = [
        asking.pod,
        labelled("b", 9),
        labelled("c", 9),
        labelled("large", 9, 2),
        replace(labelled("owned", 9), owner="job"),
        replace(labelled("other-scheduler", 9), scheduler_name="other"),
        replace(labelled("bound", 9), node=NodeName("n")),
        labelled("assumed", 9),
        pod("server", labels=labelled("x", 9).labels),
    ]
    found = members_of(asking, map(as_member, others), [PodUid("uid-assumed")])
    assert found == Members(exist=9, alike=3)
    for gone in ({"gated": True}, {"terminating": True}, {"phase": "Failed"}):
        assert member_of(replace(labelled("b", 9), **gone), NAMES) is None  # type: ignore[arg-type]


def test_a_gang_that_is_not_complete_waits_and_states_how_many_pods_exist() -> None:
    """Nothing is reserved before all of them exist, whatever is free."""
    book, asking = ledger(share_node("n", make_gpus(16))), labelled("a", 3)
    gang = gang_of(asking)
    assert gang is not None
    members, names = Members(exist=2, alike=2), [NodeName("n")]
    found = place_gang(book, gang, pod_request(asking), names, RULES, members=members, now_ns=1)
    assert isinstance(found, Postponed)
    words = "gang g waits for 1 of its 3 pods: 2 exist in namespace default"
    assert gang_sentence(found) == words


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    gangs=st.lists(
        st.tuples(st.integers(2, 6), st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=5
    )
)
def test_no_gang_holds_more_than_its_pods_request(gangs: Sequence[tuple[int, int, int]]) -> None:
    """Whatever the labels claim, a gang holds at most one place for each pod that exists."""
    book = ledger(*(share_node(name, make_gpus(16, 16)) for name in "ab"))
    for number, (size, mem, exist) in enumerate(gangs):
        asking = labelled(f"p{number}", size, mem, f"g{number}")
        gang = gang_of(asking)
        assert gang is not None
        members = Members(exist=max(exist, 1), alike=max(exist, 1))
        names = [NodeName(name) for name in "ab"]
        found = place_gang(
            book, gang, pod_request(asking), names, RULES, members=members, now_ns=number
        )
        if isinstance(found, GangPlacement):
            for allocation in found.reservations:
                book.reserve(allocation)
        held = book.gang("default", gang.name)
        assert len(held) <= max(min(exist, size), 0)
        assert isinstance(found, Postponed) == (members.exist < size)
    assert book.reserved("default") <= sum(exist for _, _, exist in gangs)
    assert book.reserved("elsewhere") == 0


def test_a_namespace_reserves_a_bounded_number_of_places() -> None:
    """Many gangs of one namespace together have no more places than one of the largest size."""
    book = ledger(share_node("n", make_gpus(*[MOST_RESERVED] * 2)))
    names, members = [NodeName("n")], Members(exist=1023, alike=1023)
    first, second = labelled("a", 1023, 1, "first"), labelled("b", 2, 1, "second")
    for asking, fits in ((first, True), (second, False)):
        gang = gang_of(asking)
        assert gang is not None
        found = place_gang(book, gang, pod_request(asking), names, RULES, members=members, now_ns=1)
        assert isinstance(found, GangPlacement) == fits
        if isinstance(found, GangPlacement):
            for allocation in found.reservations:
                book.reserve(allocation)
        else:
            assert isinstance(found, Postponed)
            assert gang_sentence(found) == (
                "gang second waits: 1023 places are already reserved in namespace default"
            )


def test_places_that_are_chosen_anew_are_as_old_as_the_first() -> None:
    """Pods with different requests that ask in turn do not renew their reservations."""
    book = ledger(share_node("n", make_gpus(16)))
    members = Members(exist=2, alike=2)
    for now, mem in ((5, 1), (900, 2)):
        asking = labelled("a", 2, mem)
        gang = gang_of(asking)
        assert gang is not None
        found = place_gang(
            book, gang, pod_request(asking), [NodeName("n")], RULES, members=members, now_ns=now
        )
        assert isinstance(found, GangPlacement)
        for uid in found.given_up:
            book.forget(uid)
        for allocation in found.reservations:
            book.reserve(allocation)
    assert [allocation.assume_time for allocation in book.gang("default", "g")] == [5, 5]


def reserve(book: Ledger, asking: Pod, members: Members, now: int = 1) -> GangPlacement:
    """Plan the places for a pod and those like it, and reserve them."""
    gang, names = gang_of(asking), list(book.nodes())
    assert gang is not None
    found = place_gang(book, gang, pod_request(asking), names, RULES, members=members, now_ns=now)
    assert isinstance(found, GangPlacement), found
    for uid in found.given_up:
        book.forget(uid)
    for allocation in found.reservations:
        book.reserve(allocation)
    return found


def amounts(held: Iterable[Allocation]) -> list[int]:
    """Units of each place."""
    return sorted(sum(one.placement.mem.values()) for one in held)


@pytest.mark.parametrize("order", [(2, 6), (6, 2)])
def test_places_of_other_requests_stay(order: tuple[int, int]) -> None:
    """A job with workers of two sizes has a place for each, whoever is scheduled first."""
    book, members = ledger(*(share_node(name, make_gpus(8, 8)) for name in "ab")), Members(4, 2)
    for mem in (*order, *order):
        found = reserve(book, labelled(f"p{mem}", 4, mem), members)
        assert amounts(found.reservations) == [mem, mem]
    assert amounts(book.gang("default", "g")) == [2, 2, 6, 6]
    assert len(book.gang("default", "g")) == book.reserved("default")


def test_requests_that_differ_in_compute_have_their_own_places() -> None:
    """The memory alone does not make a place fit."""
    book = ledger(share_node("n", make_gpus(16)))
    for core in (10, 50):
        labels = labelled("p", 2).labels
        asking = pod(f"p{core}", 2, core=core, labels=labels)
        reserve(book, asking, Members(exist=2, alike=1))
    held = book.gang("default", "g")
    assert sorted(sum(one.placement.core.values()) for one in held) == [10, 50]


def test_places_of_other_requests_are_near() -> None:
    """A node with places of the gang goes before the node that the pod fills."""
    book = ledger(share_node("a", make_gpus(8, 8)), share_node("b", make_gpus(4)))
    for mem in (8, 4):
        found = reserve(book, labelled(f"p{mem}", 2, mem), Members(exist=2, alike=1))
        assert [one.placement.node for one in found.reservations] == ["a"]


def test_a_gang_has_no_more_places_than_its_size() -> None:
    """Places of other requests beyond it are given up, as their pods are no members any more."""
    book = ledger(share_node("n", make_gpus(16)))
    reserve(book, labelled("a", 3, 1), Members(exist=3, alike=3))
    reserve(book, labelled("b", 3, 2), Members(exist=5, alike=2))
    assert amounts(book.gang("default", "g")) == [1, 2, 2]


@given(
    calls=st.lists(st.sampled_from(range(3)), max_size=12),
    alike=st.lists(st.integers(1, 3), min_size=3, max_size=3),
)
def test_each_pod_of_a_gang_of_several_requests_has_one_place(
    calls: Sequence[int], alike: Sequence[int]
) -> None:
    """However often filter is called for which of them."""
    book, size = ledger(share_node("n", make_gpus(64))), sum(alike)
    for kind in calls:
        asking = labelled(f"p{kind}", size, kind + 1)
        reserve(book, asking, Members(exist=size, alike=alike[kind]))
    wanted = [kind + 1 for kind in set(calls) for _ in range(alike[kind])]
    assert amounts(book.gang("default", "g")) == sorted(wanted)


def test_a_namespace_pauses_until_half_of_its_limit_is_worked_off() -> None:
    """At a second for each eight; a namespace that owes less than the limit does not pause."""
    times, limit = NamespaceTime(), int(LIMIT_SECONDS) * SECOND
    times.charge("early", 0, limit - SECOND)
    assert times.pause("early", limit - SECOND) == 0
    times.charge("early", 0, limit - SECOND)  # overlapping times count once
    assert times.pause("early", limit - SECOND) == 0
    times.charge("ns", 0, limit)
    longest = LIMIT_SECONDS / 2 * RECOVERY
    after = {part: times.pause("ns", limit + int(part * longest) * SECOND) for part in (0, 0.5, 1)}
    assert after == {0: longest, 0.5: longest / 2, 1: 0}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    held=st.lists(
        st.tuples(st.floats(0.1, 300, allow_nan=False), st.floats(0, 600, allow_nan=False)),
        min_size=1,
        max_size=30,
    )
)
def test_a_namespace_that_reserves_in_vain_soon_holds_little(
    held: list[tuple[float, float]],
) -> None:
    """However a tenant times its pods, in the long run it holds GPUs for a small part of time."""
    times, now, wasted = NamespaceTime(), 0, 0
    for hold, idle in held:
        pause = times.pause("ns", now)
        now += int((pause + idle) * SECOND)
        assert times.pause("ns", now) <= 1e-6
        since, hold_ns = now, int(min(hold, LIMIT_SECONDS) * SECOND)
        now += hold_ns
        wasted += hold_ns
        times.charge("ns", since, now)
        times.charge("ns", since, now)  # another place of the same time costs nothing more
        assert times.pause("other", now) == 0
    burst = 2 * LIMIT_SECONDS * SECOND
    assert wasted <= burst + now / RECOVERY
