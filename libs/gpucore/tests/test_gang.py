"""Gangs are placed together on few, well linked nodes, or not at all."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec
import pytest
from corebuilders import NAMES, bound, ledger, make_gpus, pod, pod_request, share_node
from hypothesis import example, given, settings
from hypothesis import strategies as st
from linkedgpus import BRIDGED, VOLTA, indexes, joined_gpus, linked_node

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.gangs import gang_sentence
from gpucore.gang import able_nodes
from gpucore.gang.members import Members, Postponed
from gpucore.gang.placement import place_gang, taken
from gpucore.gang.reservations import reservation_of, spare
from gpucore.gang.spread import NodeOffer
from gpucore.gang.values import GangPlacement, Shortage
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.model.links import Matrix
from gpucore.scheduling.device_fit import device_fit_error
from gpucore.scheduling.fit import fit
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.policy import place
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

pytestmark = pytest.mark.slow

NOW = 1_000
TTL = 500
RULES = Rules()


def member(number: int, size: int, *, gpus: int = 0, mem: int = 0, **more: object) -> Pod:
    """One pod of the gang ``train``."""
    labels = {"gpu-topology": "train", "gpu-topology-replica": str(size)}
    return pod(f"m{number}", mem, gpus=gpus, labels=labels, **more)  # type: ignore[arg-type]


def requested(
    book: Ledger,
    requests: Pod,
    names: Iterable[str],
    now: int = NOW,
    members: Members | None = None,
) -> GangPlacement | Shortage | Postponed:
    """The answer to a member when all exist, or ``members``; its places are reserved."""
    gang = gang_of(requests)
    assert gang is not None
    offered = [NodeName(name) for name in names]
    all_of_them = members or Members(exist=gang.size, alike=gang.size)
    answer = place_gang(
        book, gang, pod_request(requests), offered, RULES, members=all_of_them, now_ns=now
    )
    if isinstance(answer, GangPlacement):
        for uid in answer.given_up:
            book.forget(uid)
        for allocation in answer.reservations:
            book.reserve(allocation)
    return answer


def take(book: Ledger, requests: Pod, kept: Allocation) -> Allocation:
    """Bind a member to a place that is kept for its gang."""
    placement = taken(book, kept, pod_request(requests), RULES)
    assert isinstance(placement, Placement)
    book.forget(kept.uid)
    return book.assume(requests, placement, now_ns=NOW)


def reservations(book: Ledger) -> list[Allocation]:
    """Places that are kept."""
    return [c for c in book.allocations().values() if c.state is AllocationState.RESERVED]


def run(book: Ledger, pods: Sequence[Pod], names: Sequence[str]) -> list[Allocation]:
    """Let members come one after the other until one is refused."""
    placed: list[Allocation] = []
    for each in pods:
        answer = requested(book, each, names)
        if not isinstance(answer, GangPlacement):
            break
        placed.append(take(book, each, answer.reservations[0]))
    return placed


def nodes_of(answer: GangPlacement | Shortage | Postponed) -> list[str]:
    """Nodes of the places, one for each."""
    assert isinstance(answer, GangPlacement)
    return sorted(one.placement.node for one in answer.reservations)


def whole(book: Ledger, name: str, gpus: int) -> Placement | FitError:
    """What a pod of its own would get on a node."""
    node_info = book.node(NodeName(name))
    assert node_info is not None
    return place(node_info, pod_request(pod("alone", gpus=gpus)))


def test_a_gang_lands_on_one_node_in_its_best_groups() -> None:
    """Two pods of four GPUs take the halves of one machine; its restart shows the same books."""
    book = ledger(linked_node("a"), linked_node("b"))
    placed = run(book, [member(i, 2, gpus=4) for i in range(2)], "ab")
    assert [allocation.placement.node for allocation in placed] == ["a", "a"]
    assert [allocation.placement.group for allocation in placed] == [
        indexes(0, 1, 2, 3),
        indexes(4, 5, 6, 7),
    ]
    assert reservations(book) == []


def test_pods_of_a_gang_share_one_good_group_of_gpus() -> None:
    """Four pods of one GPU get four GPUs that belong together, not the four lowest."""
    holder = pod("h", gpus=3, node="a", annotations={NAMES.group: "1,2,3"})
    book = ledger(linked_node("a"), holder)
    placed = run(book, [member(i, 4, gpus=1) for i in range(4)], "a")
    assert {gpu for allocation in placed for gpu in allocation.placement.group} == {4, 5, 6, 7}


@pytest.mark.parametrize("why", ["shares", "unhealthy"])
def test_a_node_is_rated_by_the_links_of_its_free_gpus(why: str) -> None:
    """Four GPUs are free on each machine, and only on the second are they one linked half."""
    book = ledger(linked_node("a"), linked_node("b"))
    for name, gpus in (("a", indexes(0, 1, 4, 5)), ("b", indexes(0, 1, 2, 3))):
        if why == "unhealthy":
            book.unhealthy_changed(NodeName(name), frozenset(gpus))
            continue
        for gpu in gpus:
            book.pod_changed(
                pod(f"{name}{gpu}", 1, node=name, annotations={NAMES.mem_idx: str(gpu)})
            )
    assert nodes_of(requested(book, member(0, 2, gpus=2), "ab")) == ["b", "b"]


def test_a_reserved_place_states_the_unit_of_its_node() -> None:
    """So it keeps its size when the node changes its unit."""
    book = ledger(share_node("a", make_gpus(16)))
    requested(book, member(0, 2, mem=4), "a")
    assert [one.unit for one in reservations(book)] == [GIB, GIB]


def test_the_fewest_nodes_then_the_best_linked_then_the_tightest() -> None:
    """One machine beats two, NVLinks beat unknown links, and a whole machine is left whole."""
    unknown = share_node("a", make_gpus(*[16] * 8), whole=True)
    book = ledger(unknown, linked_node("b", BRIDGED), linked_node("c", BRIDGED), linked_node("v"))
    assert nodes_of(requested(book, member(0, 4, gpus=2), "abcv")) == ["v"] * 4
    book = ledger(unknown, linked_node("b", BRIDGED), linked_node("v"))
    assert nodes_of(requested(book, member(0, 6, gpus=2), "abv")) == ["b", "b", "v", "v", "v", "v"]
    half = pod("h", gpus=4, node="d", annotations={NAMES.group: "0,1,2,3"})
    book = ledger(linked_node("c"), linked_node("d"), half)
    assert nodes_of(requested(book, member(0, 2, gpus=2), "cd")) == ["d", "d"]


def test_a_gang_that_does_not_fit_takes_nothing_and_reports_what_fits() -> None:
    """Room for three of four: nobody is placed and nothing is kept."""
    quad = joined_gpus(BRIDGED)
    book = ledger(
        share_node("a", quad, whole=True),
        share_node("b", make_gpus(16, 16, 16), whole=True),
    )
    answer = requested(book, member(0, 4, gpus=2), "ab")
    assert isinstance(answer, Shortage)
    assert gang_sentence(answer) == "gang train needs 4 x 2 GPUs: capacity for 3 members on 2 nodes"
    assert not book.allocations()
    wide = requested(book, member(0, 2, mem=17), "ab")
    assert isinstance(wide, Shortage)
    assert gang_sentence(wide) == (
        "gang train needs 2 x 17 GiB of GPU memory: capacity for 0 members on 0 nodes"
    )


@pytest.mark.parametrize(
    ("gpus", "core", "spread_over", "size"),
    [(2, 50, 1, 4), (3, 0, 2, 3)],
    ids=["compute", "several GPUs"],
)
def test_a_gang_of_shares_leaves_a_gpu_to_a_pod_whose_exclusive_gpu_is_unknown(
    gpus: int, core: int, spread_over: int, size: int
) -> None:
    """Places for two pods are none for more: the gang is refused as a whole."""
    inventory = make_gpus(*[16] * gpus)
    labels = {wire_names.LABEL_MAX_POD: "2"}
    book = ledger(
        share_node("a", inventory, whole=True, labels=labels),
        pod("unknown", gpus=1, node="a"),
    )
    share = member(0, size, mem=2, core=core)
    counted = {**share.labels, NAMES.gpu_count: str(spread_over)}
    answer = requested(book, msgspec.structs.replace(share, labels=counted), "a")
    assert isinstance(answer, Shortage)
    assert (answer.missing, answer.room) == (size, 2)
    assert not reservations(book)


def test_a_gang_is_spread_where_other_rules_limit_the_pods_of_a_node() -> None:
    """Processors for one pod each, here; a node for none of them is not used."""
    book = ledger(*(share_node(name, make_gpus(16, 16)) for name in "abc"))
    requests = member(0, 2, mem=4)
    gang = gang_of(requests)
    assert gang is not None
    a, b, c = (NodeName(name) for name in "abc")

    def planned(limits: dict[NodeName, int]) -> list[NodeName]:
        answer = place_gang(
            book,
            gang,
            pod_request(requests),
            limits,
            RULES,
            members=Members(exist=2, alike=2),
            now_ns=NOW,
            limits=limits,
        )
        reservations = answer.reservations if isinstance(answer, GangPlacement) else ()
        return sorted(one.placement.node for one in reservations)

    assert planned({a: 2, b: 2}) in ([a, a], [b, b])
    assert planned({b: 1, c: 1}) == [b, c]
    assert planned({b: 1}) == []


def test_nobody_else_gets_what_is_kept() -> None:
    """Places of members to come count as taken until they come."""
    book = ledger(linked_node("a", BRIDGED))
    answer = requested(book, member(0, 2, gpus=2), "a")
    assert isinstance(answer, GangPlacement)
    take(book, member(0, 2, gpus=2), answer.reservations[0])
    refused = whole(book, "a", 1)
    assert isinstance(refused, FitError)
    later = requested(book, member(1, 2, gpus=2), "a")
    assert isinstance(later, GangPlacement)
    assert later.reservations == answer.reservations[1:]


def test_a_member_passes_only_to_places_that_are_kept_and_offered() -> None:
    """Where the scheduler no longer offers the node, places are found anew or the pod waits."""
    book = ledger(linked_node("a", BRIDGED), linked_node("b", BRIDGED))
    assert nodes_of(requested(book, member(0, 2, gpus=2), "ab")) == ["a", "a"]
    assert nodes_of(requested(book, member(0, 2, gpus=2), "b")) == ["b", "b"]
    assert isinstance(requested(book, member(0, 2, gpus=2), "c"), Shortage)
    assert len(reservations(book)) == 2


def test_after_a_restart_a_half_placed_gang_goes_on_from_what_is_shown() -> None:
    """Members with a node count, and the places of the others are found anew beside them."""
    inventory = joined_gpus(VOLTA)
    first = member(0, 3, gpus=2)
    shown = bound(first, Placement(NodeName("b"), group=indexes(0, 3)), inventory)
    book = ledger(linked_node("a"), linked_node("b"), shown)
    assert nodes_of(requested(book, member(1, 3, gpus=2), "ab")) == ["b", "b"]
    taken_up = pod("h", gpus=5, node="b", annotations={NAMES.group: "1,2,4,5,6"})
    book = ledger(linked_node("b"), shown, taken_up)
    answer = requested(book, member(1, 3, gpus=2), "b")
    assert isinstance(answer, Shortage)
    assert (
        gang_sentence(answer)
        == "gang train needs 2 more x 2 GPUs: capacity for 0 members on 0 nodes"
    )


def test_a_member_that_is_being_deleted_is_none() -> None:
    """The pods of an earlier run of the job do not stand for those of the next."""
    first = member(0, 2, gpus=2)
    shown = bound(first, Placement(NodeName("a"), group=indexes(0, 3)), joined_gpus(VOLTA))
    going = msgspec.structs.replace(shown, terminating=True)
    book = ledger(linked_node("a"), shown)
    assert len(book.gang("default", "train")) == 1
    book.pod_changed(going)
    assert book.gang("default", "train") == []
    assert allocation_of(going, NAMES) == book.allocation(first.uid)


def test_only_nodes_whose_places_are_in_doubt_are_copied_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pod of a gang of a thousand looks at the places of all."""
    copied: list[NodeName] = []
    copy = NodeInfo.copy

    def counted(node_info: NodeInfo) -> NodeInfo:
        copied.append(node_info.name)
        return copy(node_info)

    monkeypatch.setattr(NodeInfo, "copy", counted)
    book = ledger(share_node("a", make_gpus(16)), share_node("b", make_gpus(16)))
    requested(book, member(0, 12, mem=2), "ab")
    copied.clear()
    answer = requested(book, member(0, 12, mem=2), "ab")
    assert nodes_of(answer) == ["a"] * 8 + ["b"] * 4
    assert copied == []
    book.pod_changed(pod("stray", 4, node="b"))
    answer = requested(book, member(0, 12, mem=2), "ab")
    assert nodes_of(answer) == ["a"] * 8 + ["b"] * 4
    assert copied == ["b"]


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 9), max_size=4),
    st.sampled_from([{"mem": 3}, {"mem": 8}, {"gpus": 1}, {"gpus": 2}]),
    st.sets(st.integers(0, 3), max_size=2),
    st.booleans(),
)
def test_places_that_are_not_in_doubt_stand_by_the_rules_for_a_copy(
    later: list[int], request: dict[str, int], ill: set[int], stray: bool
) -> None:
    """Pods that no scheduler placed come to the GPUs of the places, and GPUs become unhealthy."""
    book = ledger(share_node("a", make_gpus(8, 8, 8, 8), whole=True))
    asks = member(0, 3, **request)
    requested(book, asks, "a")
    for number, mem in enumerate(later):
        on_gpu = {NAMES.mem_idx: str(number)}
        book.pod_changed(pod(f"late{number}", mem, node="a", annotations=on_gpu))
    if stray:
        book.pod_changed(pod("stray", 1, node="a"))
    book.unhealthy_changed(NodeName("a"), frozenset(indexes(*ill)))
    kept, ask = reservations(book), pod_request(asks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(able_nodes, "_surely_stands", lambda *_: False)
        expected = able_nodes.standing_places(book, kept, ask)
    assert able_nodes.standing_places(book, kept, ask) == expected


def test_a_place_that_no_longer_holds_is_found_anew() -> None:
    """A GPU that was lost meanwhile is not given to a member."""
    book = ledger(linked_node("a", BRIDGED), linked_node("b", BRIDGED))
    requested(book, member(0, 2, gpus=2), "ab")
    book.unhealthy_changed(NodeName("a"), frozenset(indexes(3)))
    assert nodes_of(requested(book, member(0, 2, gpus=2), "ab")) == ["b", "b"]
    assert len(reservations(book)) == 2


def test_a_place_whose_gpu_is_not_healthy_is_taken_on_another_gpu_of_its_node() -> None:
    """The GPU became unhealthy after filter; the place of the other member stays."""
    book = ledger(share_node("a", make_gpus(8, 8, 8)))
    requested(book, member(0, 2, mem=6), "a")
    kept, other = reservations(book)
    lost, stays = (one.placement.gpus[0] for one in (kept, other))
    book.unhealthy_changed(NodeName("a"), frozenset(indexes(lost)))
    bound_to = take(book, member(0, 2, mem=6), kept).placement
    assert {lost, stays, *bound_to.mem} == {0, 1, 2}


def test_a_place_of_an_exclusive_gpu_ends_when_another_pod_has_a_share_of_it() -> None:
    """The share was bound by another extender: the place is found anew on a free GPU."""
    book = ledger(linked_node("a", BRIDGED))
    requested(book, member(0, 2, gpus=1), "a")
    taken_gpu = reservations(book)[0].placement.gpus[0]
    book.pod_changed(pod("other", 1, node="a", annotations={NAMES.mem_idx: str(taken_gpu)}))
    requested(book, member(0, 2, gpus=1), "a")
    places = {gpu for one in reservations(book) for gpu in one.placement.gpus}
    assert (len(places), taken_gpu in places) == (2, False)


@pytest.mark.parametrize("texts", [{NAMES.mem_idx: "0"}, {}], ids=["known GPU", "unknown GPU"])
def test_places_that_no_longer_fit_together_are_found_anew(texts: dict[str, str]) -> None:
    """A pod that bypassed the scheduler took a GPU: each bind would be refused for the other."""
    book = ledger(share_node("a", make_gpus(8)), share_node("b", make_gpus(4)))
    assert nodes_of(requested(book, member(0, 2, mem=4), "ab")) == ["a", "a"]
    book.pod_changed(pod("other", 4, node="a", annotations=texts))
    assert nodes_of(requested(book, member(0, 2, mem=4), "ab")) == ["a", "b"]
    placed = [take(book, member(n, 2, mem=4), kept) for n, kept in enumerate(reservations(book))]
    assert {one.placement.node for one in placed} == {"a", "b"}


def test_places_that_are_chosen_anew_do_not_count_beside_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang that has all places of its namespace may move."""
    monkeypatch.setattr("gpucore.gang.placement.MOST_RESERVED", 2)
    book = ledger(linked_node("a", BRIDGED), linked_node("b", BRIDGED))
    assert nodes_of(requested(book, member(0, 2, gpus=2), "a")) == ["a", "a"]
    assert nodes_of(requested(book, member(0, 2, gpus=2), "b")) == ["b", "b"]


def test_a_gang_of_which_a_pod_is_placed_goes_on_with_the_pods_that_exist() -> None:
    """One that has ended is not awaited again."""
    book = ledger(linked_node("a", BRIDGED))
    first = requested(book, member(0, 3, gpus=1), "a")
    assert isinstance(first, GangPlacement)
    take(book, member(0, 3, gpus=1), first.reservations[0])
    for place_left in reservations(book):
        book.forget(place_left.uid)
    assert nodes_of(requested(book, member(1, 3, gpus=1), "a", members=Members(2, 1))) == ["a"]


def test_reservations_end_by_themselves() -> None:
    """What nobody came for is free again when its time is over, and not before."""
    book = ledger(linked_node("a", BRIDGED))
    requested(book, member(0, 2, gpus=2), "a")
    assert book.expire(NOW + TTL - 1, TTL) == []
    assert len(book.expire(NOW + TTL, TTL)) == 2
    assert not book.allocations()
    assert isinstance(whole(book, "a", 4), Placement)


def test_places_are_kept_while_the_gang_can_use_them() -> None:
    """Superfluous ones go when members come another way, all of them with the last pod."""
    book = ledger(linked_node("a"))
    requested(book, member(0, 3, gpus=1), "a")
    held = book.gang("default", "train")
    assert spare(held, 3, waiting=3) == []
    assert spare(held, 3, waiting=0) == [allocation.uid for allocation in held]
    assert spare(held, 3, waiting=1) == [allocation.uid for allocation in held[1:]]
    assert spare(held, 2, waiting=3) == [held[2].uid]
    placed = take(book, member(0, 3, gpus=1), held[0])
    assert spare(book.gang("default", "train"), 3, waiting=2) == []
    assert spare(book.gang("default", "train"), 2, waiting=2) == [held[2].uid]
    book.forget(placed.uid)
    book.reserve(reservation_of(placed))
    assert len(reservations(book)) == 3


def test_the_labels_must_make_sense() -> None:
    """A gang needs its size; one pod is no gang; namespaces keep gangs apart."""
    alone = pod("p", gpus=1, labels={"gpu-topology": "train"})
    assert "gpu-topology-replica" in pod_request(alone).fault
    assert gang_of(alone) is None
    assert gang_of(member(0, 1, gpus=1)) is None
    assert pod_request(member(0, 1, gpus=1)).fault == ""
    here = gang_of(member(0, 2, gpus=1))
    there = gang_of(msgspec.structs.replace(member(0, 2, gpus=1), namespace="other"))
    assert here is not None
    assert here != there


@settings(max_examples=150, deadline=None)
@given(
    held=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 60)), max_size=6),
    mem=st.integers(0, 9),
    core=st.integers(0, 60),
    gpus=st.integers(1, 3),
    whole_device=st.booleans(),
    max_pods=st.integers(0, 3),
)
@example(held=[], mem=5, core=0, gpus=3, whole_device=False, max_pods=0)
@example(held=[(3, 0, 60)] * 3, mem=0, core=60, gpus=1, whole_device=False, max_pods=0)
def test_room_for_equal_shares_is_what_no_other_choice_of_gpus_exceeds(
    *,
    held: list[tuple[int, int, int]],
    mem: int,
    core: int,
    gpus: int,
    whole_device: bool,
    max_pods: int,
) -> None:
    """Counting finds what trying all GPUs finds, pending pods included, and so many are placed."""
    labels = {wire_names.LABEL_MAX_POD: str(max_pods)} if max_pods else {}
    book = ledger(share_node("n", make_gpus(9, 16, 12), labels=labels))
    for number, (at, units, percent) in enumerate(held):
        texts = {NAMES.mem_idx: str(at)} if at < 3 else {}
        if units or percent:
            item = pod(f"h{number}", units, core=percent, node="n", annotations=texts)
            book.pod_changed(item)
    label = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    asking = pod("p", gpus * (mem or 1), core=gpus * core, labels=label if whole_device else {})
    wanted = msgspec.structs.replace(pod_request(asking), gpu_count=gpus)
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    if fit(node_info, wanted) is None:
        offer = NodeOffer(node_info, wanted, RULES, most=8)
        assert offer.room == len(offer.load(8)) == most_shares(node_info, wanted, 8, {})


def most_shares(
    node_info: NodeInfo,
    wanted: PodRequest,
    most: int,
    known: dict[tuple[tuple[int, int, int], ...], int],
) -> int:
    """The maximum number of equal shares on the node, at most ``most``, by trying all GPUs."""
    devices = node_info.devices.values()
    state = tuple((one.free, one.core_free, len(one.holders)) for one in devices)
    if state in known or not most or fit(node_info, wanted) is not None:
        return known.get(state, 0)
    found = 0
    for chosen in combinations([one.index for one in devices], wanted.gpu_count):
        placement = place(node_info, wanted, choose_group=lambda *_, gpus=chosen: gpus)
        assert isinstance(placement, Placement)
        if not able(node_info, wanted, chosen):
            continue
        filled = node_info.copy()
        alone = wanted.whole_device
        uid = PodUid(f"tried/{most}")
        filled.put(Allocation(uid, "", "", AllocationState.RESERVED, placement, exclusive=alone))
        found = max(found, 1 + most_shares(filled, wanted, most - 1, known))
    known[state] = found
    return found


def able(node_info: NodeInfo, wanted: PodRequest, chosen: Sequence[GpuIndex]) -> bool:
    """Each of the GPUs takes its part."""
    return all(device_fit_error(node_info.devices[gpu], wanted) is None for gpu in chosen)


MACHINES = st.lists(st.sampled_from((BRIDGED, VOLTA, None)), min_size=1, max_size=4)
STRANGERS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=6)


def cluster(machines: Sequence[Matrix | None], held: Sequence[tuple[int, int]]) -> Ledger:
    """Nodes named by their number, on some of which pods hold exclusive GPUs."""
    nodes = [
        share_node(str(at), make_gpus(16, 16, 16), whole=True)
        if matrix is None
        else linked_node(str(at), matrix)
        for at, matrix in enumerate(machines)
    ]
    book = ledger(*nodes)
    for number, (at, gpus) in enumerate(held):
        stranger(book, at % len(nodes), gpus, number)
    return book


def stranger(book: Ledger, at: int, gpus: int, number: int) -> None:
    """A pod of no gang that takes GPUs on a node if it can."""
    found = whole(book, str(at), gpus)
    if isinstance(found, Placement):
        book.assume(pod(f"s{number}", gpus=gpus), found, now_ns=NOW)


@settings(max_examples=200, deadline=None)
@given(
    machines=MACHINES,
    held=STRANGERS,
    coming=STRANGERS,
    size=st.integers(2, 5),
    gpus=st.integers(0, 4),
    mem=st.integers(1, 16),
)
def test_all_of_a_gang_or_none_whoever_comes_between(
    *,
    machines: list[Matrix | None],
    held: list[tuple[int, int]],
    coming: list[tuple[int, int]],
    size: int,
    gpus: int,
    mem: int,
) -> None:
    """All members are placed where all fitted at the start, else none; never more than there is.

    The number of nodes is the least there is, strangers between the members change nothing, and no
    reservation is left.
    """
    book = cluster(machines, held)
    names = [str(at) for at in range(len(machines))]
    pods = [member(i, size, gpus=gpus, mem=0 if gpus else mem) for i in range(size)]
    rooms = {name: room(book, name, pods) for name in names}
    placed: list[Allocation] = []
    for number, each in enumerate(pods):
        answer = requested(book, each, names)
        if not isinstance(answer, GangPlacement):
            assert isinstance(answer, Shortage)
            assert number == 0
            assert answer.room == sum(rooms.values()) < size
            break
        for at, many in coming[number : number + 1]:
            stranger(book, at % len(machines), many, 100 + number)
        placed.append(take(book, each, answer.reservations[-1]))
        assert not any(node_info.overfull for node_info in book.nodes().values())
    assert len(placed) == (size if sum(rooms.values()) >= size else 0)
    assert len({allocation.placement.node for allocation in placed}) == least(
        rooms.values(), len(placed)
    )
    assert reservations(book) == []


def room(book: Ledger, name: str, pods: Sequence[Pod]) -> int:
    """How many of ``pods`` fit one node, by plain trying."""
    node_info = book.node(NodeName(name))
    assert node_info is not None
    books = node_info.copy()
    for number, each in enumerate(pods):
        wanted = pod_request_of(each, NAMES)
        assert wanted is not None
        found = place(books, wanted)
        if isinstance(found, FitError):
            return number
        books.put(Allocation(each.uid, "", "", AllocationState.ASSUMED, found))
    return len(pods)


def least(rooms: Iterable[int], count: int) -> int:
    """The least number of nodes with room for ``count``, by trying all sets of nodes."""
    known = list(rooms)
    sizes = range(len(known) + 1)
    return next(n for n in sizes if any(sum(c) >= count for c in combinations(known, n)))
