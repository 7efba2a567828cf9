"""A PodGroup gets places for as many pods as it needs, beside each other, or none."""

import json
from typing import Any

import msgspec
import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.gang import group_plan
from gpucore.gang.able_nodes import MOST_COMPARED, able_nodes, reserved_place
from gpucore.gang.gang_pods import GangPods
from gpucore.gang.group_plan import plan_group
from gpucore.gang.group_view import group_view, standing
from gpucore.gang.members import GroupMember, Member, PlacementKind
from gpucore.gang.pod_groups import PodGroups
from gpucore.gang.reservations import reserved_for
from gpucore.gang.values import GroupShortage
from gpucore.model import Allocation, AllocationState, Placement, PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.lists import event_of, page_of
from gpucore.wire.pod.gangs import Gang, gang_of, reservation_uid
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.pod_groups import PodGroup, decode_pod_group, serves_pod_groups

UNITS = 8
GANG = Gang("default", "podgroup/g", 2)


def grouped(number: int, mem: int, **more: object) -> Pod:
    """A pod of the PodGroup ``g``."""
    item = pod(f"p{number}", mem, **more)  # type: ignore[arg-type]
    return msgspec.structs.replace(item, pod_group="g")


def member(number: int, mem: int) -> GroupMember:
    """A pod that needs a place."""
    one = grouped(number, mem)
    return GroupMember(one.uid, pod_request(one), PlacementKind("", ""))


def book_of(*gpus: int) -> Ledger:
    """Nodes ``n0`` ... with so many GPUs."""
    sizes = (make_gpus(*[UNITS] * count) for count in gpus)
    return ledger(*(share_node(f"n{number}", each) for number, each in enumerate(sizes)))


def plan(
    book: Ledger,
    members: list[GroupMember],
    needed: int,
    kept: dict[PodUid, Allocation] | None = None,
    most: int = MOST_COMPARED,
) -> dict[PodUid, Allocation] | GroupShortage:
    """Places on any node."""
    names = list(book.nodes())
    return plan_group(
        book,
        GANG,
        members,
        Rules(),
        nodes=lambda _: names,
        kept=kept or {},
        needed=needed,
        now_ns=1,
        most=most,
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    gpus=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, UNITS), min_size=1, max_size=12),
    data=st.data(),
)
def test_a_plan_has_enough_places_and_fills_no_gpu_twice(
    gpus: list[int], sizes: list[int], data: st.DataObject
) -> None:
    """All places of the plan together can be reserved; a refusal states how many fit."""
    book = book_of(*gpus)
    needed = data.draw(st.integers(1, len(sizes)))
    found = plan(book, [member(number, size) for number, size in enumerate(sizes)], needed)
    if isinstance(found, GroupShortage):
        assert found.found < needed == found.needed
        return
    assert len(found) >= needed
    for one in found.values():
        book.reserve(one)
    for node_info in book.nodes().values():
        assert all(device.used <= UNITS for device in node_info.devices.values())


@settings(max_examples=150, deadline=None)
@given(
    gpus=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    size=st.integers(1, UNITS),
    count=st.integers(1, 12),
)
def test_equal_pods_are_placed_exactly_where_they_fit(
    gpus: list[int], size: int, count: int
) -> None:
    """As many as the GPUs take, whatever nodes these are on."""
    room = sum(gpus) * (UNITS // size)
    found = plan(book_of(*gpus), [member(number, size) for number in range(count)], 1)
    assert not isinstance(found, GroupShortage)
    assert len(found) == min(room, count)


def test_places_that_are_kept_count_for_the_group() -> None:
    """One GPU is left beside the kept place, so two of two pods have one."""
    book = book_of(2)
    first = plan(book, [member(0, UNITS)], 1)
    assert not isinstance(first, GroupShortage)
    for one in first.values():
        book.reserve(one)
    second = plan(book, [member(1, UNITS)], 2, kept=first)
    assert not isinstance(second, GroupShortage)
    assert len(second) == 1
    third = plan(book, [member(1, UNITS), member(2, UNITS)], 3, kept=first)
    assert isinstance(third, GroupShortage)
    assert (third.needed, third.found, third.unit) == (2, 1, GIB)


def test_reservations_of_the_group_that_are_not_kept_count_as_free() -> None:
    """A new plan may use them."""
    book = book_of(1)
    book.reserve(next(iter(plan(book, [member(0, UNITS)], 1).values())))  # type: ignore[union-attr]
    assert not isinstance(plan(book, [member(1, UNITS)], 1), GroupShortage)


def test_places_that_another_pod_took_do_not_stand() -> None:
    """All of them, or the answer is none."""
    book = book_of(1, 1)
    members = [Member(one, pod_request(one)) for one in (grouped(0, UNITS), grouped(1, UNITS))]
    view = group_view(book, GANG, members)
    places = plan(book, list(view.members), 2)
    assert not isinstance(places, GroupShortage)
    assert standing(book, view, places) == places
    other = pod("other", UNITS)
    book.assume(other, places[PodUid("uid-p0")].placement, now_ns=1)
    assert standing(book, view, places) is None
    assert len(standing(book, view, {PodUid("uid-p1"): places[PodUid("uid-p1")]}) or {}) == 1


def test_a_view_counts_placed_pods_and_those_without_gpus() -> None:
    """Of a minimum of five, one is bound, one requests nothing of ours: three places are needed."""
    book = book_of(4)
    pods = [grouped(0, 4), grouped(1, 4), grouped(2, 4), grouped(3, 4, node="n0"), grouped(4, 0)]
    members = [Member(one, pod_request(one) if one.containers[0].limits else None) for one in pods]
    view = group_view(book, msgspec.structs.replace(GANG, size=5), members)
    assert (view.exist, view.needed) == (5, 3)
    assert [one.uid for one in view.members] == ["uid-p0", "uid-p1", "uid-p2"]


def test_pods_of_another_scheduler_are_no_members() -> None:
    """kube-scheduler refuses such a group; nothing is reserved for pods of others."""
    book = book_of(4)
    mine, other = grouped(0, 4), grouped(1, 4)
    other = msgspec.structs.replace(other, scheduler_name="other")
    view = group_view(book, GANG, [Member(one, pod_request(one)) for one in (mine, other)])
    assert [one.uid for one in view.members] == ["uid-p0"]


def test_a_pod_with_a_broken_request_is_not_to_be_placed() -> None:
    """Nor is one that has a node."""
    broken = grouped(0, 4, labels={"aliyun.com/gpu-count": "x"})
    assert pod_request(broken).fault
    assert Member(broken, pod_request(broken)).group_member is None
    held = grouped(1, 4, node="n0")
    assert Member(held, pod_request(held)).group_member is None


def test_a_place_names_its_pod() -> None:
    """So the place of a pod that is deleted is found."""
    book = book_of(2)
    for one in plan(book, [member(0, 4), member(1, 4)], 2).values():  # type: ignore[union-attr]
        book.reserve(one)
    assert reserved_for(book, GANG).keys() == {"uid-p0", "uid-p1"}
    assert reservation_uid(GANG, PodUid("u")) == "gang/default/podgroup/g/u"


def test_places_whose_pod_does_not_wait_are_spare() -> None:
    """Pods of the watch and of a scheduler's request wait."""
    book = book_of(3)
    for one in plan(book, [member(number, 4) for number in range(3)], 3).values():  # type: ignore[union-attr]
        book.reserve(one)
    gang_pods = GangPods(NAMES, lambda _: False)
    gang_pods.note(grouped(0, 4))
    held = book.gang(*GANG.key)
    found = gang_pods.spare(GANG, held, [PodUid("uid-p1")])
    assert found == [reservation_uid(GANG, PodUid("uid-p2"))]


def test_a_pod_names_its_group() -> None:
    """The PodGroup goes before labels; its size comes from the object."""
    body = {
        "metadata": {"name": "p", "namespace": "default", "labels": {"gpu-topology": "x"}},
        "spec": {"schedulingGroup": {"podGroupName": "g"}},
    }
    found = decode_pod(json.dumps(body).encode())
    assert gang_of(found) == Gang("default", "podgroup/g", 1)
    groups = PodGroups()
    groups.on_update(PodGroup("default", "g", 7))
    assert groups.gang_of(found) == Gang("default", "podgroup/g", 7)
    assert gang_of(found).is_group  # type: ignore[union-attr]
    body["spec"] = {"schedulingGroup": {}}
    assert gang_of(decode_pod(json.dumps(body).encode())) is None


def test_groups_follow_their_watch() -> None:
    """A change of the size is news, another one is none."""
    groups, one = PodGroups(), PodGroup("default", "g", 7, disrupted_whole=True)
    news: list[int] = []
    groups.resized = lambda: news.append(1)
    groups.on_update(one)
    groups.on_update(one)
    assert news == [1]
    assert groups.disrupted_whole(GANG.key)
    groups.on_replace([PodGroup("default", "h", 2)])
    assert not groups.disrupted_whole(GANG.key)
    assert groups.gang_of(grouped(0, 1)) == Gang("default", "podgroup/g", 1)
    groups.on_update(one)
    groups.on_delete(one)
    assert groups.gang_of(grouped(0, 1)) == Gang("default", "podgroup/g", 1)
    assert groups.gang_of(pod("alone", 1)) is None


@pytest.mark.parametrize(
    ("spec", "size", "whole"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 5}}}, 5, False),
        ({"schedulingPolicy": {"gang": {"minCount": -3}}}, 1, False),
        ({"schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}}}, 1, False),
        ({"disruptionMode": {"all": {}}}, 1, True),
        (None, 1, False),
    ],
)
def test_a_pod_group_is_read(spec: object, size: int, *, whole: bool) -> None:
    """From a list and from a line of a watch."""
    metadata = {"name": "g", "namespace": "default", "resourceVersion": "5"}
    item = {"metadata": metadata, "spec": spec}
    expected = PodGroup("default", "g", size, "5", disrupted_whole=whole)
    page = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [item]}).encode()
    assert page_of(page, decode_pod_group).items == (expected,)
    line = json.dumps({"type": "ADDED", "object": item}).encode()
    assert event_of(line, decode_pod_group).item == expected


def test_a_pod_group_states_its_composite_and_that_it_was_scheduled() -> None:
    """The composite is what kube-scheduler places in one cycle."""
    conditions = [{"type": "Other", "status": "False"}]
    item = {
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"parentCompositePodGroupName": "all"},
        "status": {"conditions": conditions},
    }
    groups = PodGroups()
    groups.on_update(decode_pod_group(json.dumps(item).encode()))
    assert groups.root(GANG.key) == ("default", "composite/all")
    assert not groups.scheduled(GANG.key)
    conditions.append({"type": "PodGroupInitiallyScheduled", "status": "True"})
    groups.on_update(decode_pod_group(json.dumps(item).encode()))
    assert groups.scheduled(GANG.key)
    assert groups.root(("default", "other")) == ("default", "other")


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"metadata": 5}', b'{"spec": {}}'])
def test_what_is_no_pod_group_is_an_error(raw: bytes) -> None:
    """Of one kind."""
    with pytest.raises(WireError, match="no PodGroup"):
        decode_pod_group(raw)


@pytest.mark.parametrize(
    ("raw", "served"),
    [
        (b'{"resources": [{"name": "priorityclasses"}, {"name": "podgroups"}]}', True),
        (b'{"resources": [{"name": "priorityclasses"}]}', False),
        (b'{"resources": null}', False),
        (b"not found", False),
    ],
)
def test_an_api_version_serves_pod_groups_or_not(raw: bytes, *, served: bool) -> None:
    """scheduling.k8s.io/v1beta1 had other resources before."""
    assert serves_pod_groups(raw) is served


def test_nodes_of_a_plan_are_the_fewest() -> None:
    """Two pods go to the node that has room for both."""
    found = plan(book_of(1, 2, 1), [member(0, UNITS), member(1, UNITS)], 2)
    assert not isinstance(found, GroupShortage)
    assert {one.placement.node for one in found.values()} == {NodeName("n1")}


def test_the_largest_requests_are_placed_first() -> None:
    """Two pods of 3 units on one GPU would leave no room for the second pod of 5."""
    members = [member(number, mem) for number, mem in enumerate((3, 3, 5, 5))]
    found = plan(book_of(1, 1), members, 4)
    assert not isinstance(found, GroupShortage)
    assert found.keys() == {one.uid for one in members}


def test_of_equal_requests_the_pods_that_are_first_get_the_places() -> None:
    """Whoever owns them; there is room for one."""
    first = msgspec.structs.replace(member(1, UNITS), kind=("job-a", ""))
    second = msgspec.structs.replace(member(0, UNITS), kind=("job-b", ""))
    for members in ([first, second], [second, first]):
        found = plan(book_of(1), members, 1)
        assert not isinstance(found, GroupShortage)
        assert found.keys() == {members[0].uid}


def test_pods_go_to_nodes_where_their_group_runs() -> None:
    """Before other nodes with as much room; a place that is not kept does not count."""
    book = book_of(2, 2, 2)
    uid, request = reservation_uid(GANG, PodUid("uid-p2")), member(2, UNITS).pod_request
    book.reserve(reserved_place(book, GANG, uid, request, Placement(NodeName("n0")), now_ns=1))
    labels = {"gpu-topology": GANG.name, "gpu-topology-replica": "2"}
    runs = grouped(1, UNITS, node="n1", labels=labels, annotations={NAMES.mem_idx: "0"})
    book.pod_changed(runs)
    found = plan(book, [member(0, UNITS)], 1)
    assert not isinstance(found, GroupShortage)
    assert [one.placement.node for one in found.values()] == ["n1"]


def test_a_reserved_place_is_that_of_its_pod() -> None:
    """With the unit of its node, and to itself where the pod requires it."""
    labels = {"ack.gpushare.placement": "require-whole-device"}
    request = pod_request(grouped(0, 4, labels=labels))
    uid = reservation_uid(GANG, PodUid("uid-p0"))
    place = Placement(NodeName("n0"), mem={GpuIndex(0): 4})
    assert reserved_place(book_of(1), GANG, uid, request, place, now_ns=7) == Allocation(
        uid,
        "default",
        "gang podgroup/g",
        AllocationState.RESERVED,
        place,
        exclusive=True,
        unit=GIB,
        assume_time=7,
        gang="podgroup/g",
    )


def test_a_pod_that_is_being_bound_needs_no_place() -> None:
    """The API server does not show its node yet; what was reserved for it is not the group's."""
    book, pods = book_of(2), [grouped(0, 4), grouped(1, 4)]
    for one in plan(book, [member(0, 4), member(1, 4)], 2).values():  # type: ignore[union-attr]
        book.reserve(one)
    members = [Member(one, pod_request(one)) for one in pods]
    assert group_view(book, GANG, members).reserved.keys() == {"uid-p0", "uid-p1"}
    book.assume(pods[1], Placement(NodeName("n0"), mem={GpuIndex(0): 4}), now_ns=1)
    view = group_view(book, GANG, members)
    assert (view.gang, view.exist, view.needed) == (GANG, 2, 1)
    assert [one.uid for one in view.members] == ["uid-p0"]
    assert view.reserved.keys() == {"uid-p0"}


def test_places_on_one_gpu_stand_only_together() -> None:
    """Each of them fits beside the other pod, and both do not."""
    book = book_of(1)
    members = [Member(one, pod_request(one)) for one in (grouped(0, 4), grouped(1, 4))]
    view = group_view(book, GANG, members)
    places = plan(book, list(view.members), 2)
    assert not isinstance(places, GroupShortage)
    assert standing(book, view, places) == places
    book.assume(pod("other", 4), Placement(NodeName("n0"), mem={GpuIndex(0): 4}), now_ns=1)
    for uid, one in places.items():
        assert standing(book, view, {uid: one})
    assert standing(book, view, places) is None


def test_pods_of_many_kinds_that_may_go_anywhere_are_placed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pod with volumes is a kind of its own: the nodes are evaluated once for all."""
    evaluated: list[PodRequest] = []

    def counting(book: Ledger, changed: Any, request: PodRequest, names: Any, *, most: int) -> Any:
        evaluated.append(request)
        return able_nodes(book, changed, request, names, most=most)

    monkeypatch.setattr(group_plan, "able_nodes", counting)
    members = [
        msgspec.structs.replace(member(n, 5), kind=PlacementKind("", "", pinned=str(n)))
        for n in range(4)
    ]
    found = plan(book_of(1, 1, 2), members, 4)
    assert isinstance(found, dict)
    assert len(evaluated) == 1


def test_many_requests_are_compared_on_the_nodes_with_most_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of four nodes for each of three requests; a few requests are compared on all nodes."""
    monkeypatch.setattr(group_plan, "LEAST_COMPARED", 1)
    compared: list[set[str]] = []

    def noting(*args: Any, **more: Any) -> Any:
        found = list(able_nodes(*args, **more))
        compared.append({one.name for one in found})
        return found

    monkeypatch.setattr(group_plan, "able_nodes", noting)
    book = book_of(1, 2, 4, 3)
    assert isinstance(plan(book, [member(n, 6 - n) for n in range(3)], 3, most=7), dict)
    assert compared == [{"n2", "n3"}] * 3
    compared.clear()
    assert isinstance(plan(book, [member(n, 6) for n in range(3)], 3, most=7), dict)
    assert compared == [{"n0", "n1", "n2", "n3"}]


def test_nodes_without_room_for_a_request_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One node is compared: that with room for the pod, not that with most left in small parts."""
    monkeypatch.setattr(group_plan, "LEAST_COMPARED", 1)
    book = book_of(2, 1)
    for gpu in range(2):
        holder = pod(f"holder{gpu}", 2, node="n0", annotations={NAMES.mem_idx: str(gpu)})
        book.pod_changed(holder)
    assert book.free_units == {"n0": 12, "n1": 8}
    found = plan(book, [member(0, UNITS)], 1, most=1)
    assert isinstance(found, dict)
    assert [one.placement.node for one in found.values()] == ["n1"]


def test_whether_one_place_stands_concerns_its_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has up to a thousand places, and each call looks at its own."""
    book = book_of(*[1] * 6)
    members = [Member(one, pod_request(one)) for one in (grouped(n, 6) for n in range(6))]
    places = plan(book, list(group_view(book, GANG, members).members), 6)
    assert isinstance(places, dict)
    for one in places.values():
        book.reserve(one)
    copied: list[NodeName] = []
    copy = NodeInfo.copy

    def noting(node_info: NodeInfo) -> NodeInfo:
        copied.append(node_info.name)
        return copy(node_info)

    monkeypatch.setattr(NodeInfo, "copy", noting)
    view = group_view(book, GANG, members)
    uid, mine = next(iter(places.items()))
    assert standing(book, view, {uid: mine})
    assert set(copied) == {mine.placement.node}


def placed_by_offers(
    book: Ledger, requests: list[tuple[int, str]], most: int = MOST_COMPARED
) -> dict[PodUid, Allocation] | GroupShortage:
    """Places for one pod of each request, on the nodes that its kind is offered."""
    members = [
        msgspec.structs.replace(member(number, mem), requests=(("cpu", number),))
        for number, (mem, _) in enumerate(requests)
    ]
    offered = {
        one.requests: frozenset(names.split())
        for one, (_, names) in zip(members, requests, strict=True)
    }
    return plan_group(
        book,
        GANG,
        members,
        Rules(),
        nodes=lambda one: offered[one.requests],  # type: ignore[arg-type, return-value]
        kept={},
        needed=len(members),
        now_ns=1,
        most=most,
    )


def test_a_request_that_finds_too_few_places_goes_first_in_another_attempt() -> None:
    """The larger request would take the only node that the smaller one is offered."""
    found = placed_by_offers(book_of(1, 1), [(8, "n0 n1"), (2, "n0")])
    assert isinstance(found, dict)
    assert {uid: one.placement.node for uid, one in found.items()} == {
        "uid-p0": "n1",
        "uid-p1": "n0",
    }


@pytest.mark.parametrize(("most", "attempts"), [(7, 1), (8, 2), (1000, 2)])
def test_all_attempts_together_compare_so_many_nodes(
    most: int, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of different requests that never fits takes no more of the extender's time."""
    compared: list[int] = []

    def counting(*args: Any, **more: Any) -> Any:
        compared.append(len(args[3]))
        return able_nodes(*args, **more)

    monkeypatch.setattr(group_plan, "able_nodes", counting)
    monkeypatch.setattr(group_plan, "LEAST_COMPARED", 1)
    found = placed_by_offers(book_of(1, 1), [(8, "n0"), (6, "n0"), (2, "n0 n1")], most)
    assert isinstance(found, GroupShortage)
    assert len(compared) == 3 * attempts


def test_nominated_pods_go_elsewhere_if_the_group_fits_only_so() -> None:
    """One of them is nominated for the only node with two GPUs, which another pod needs."""
    book = book_of(1, 2)
    small = msgspec.structs.replace(member(0, 8), nominated=NodeName("n1"))
    spread = msgspec.structs.replace(pod_request(grouped(1, 16)), gpu_count=2)
    large = msgspec.structs.replace(member(1, 8), pod_request=spread)
    found = plan(book, [small, large], 2)
    assert isinstance(found, dict)
    assert found[small.uid].placement.node == "n0"
