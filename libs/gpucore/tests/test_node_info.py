"""What goes in comes out: every kind of holding is given back to the last unit."""

import msgspec
import pytest
from corebuilders import NAMES, assumed, ledger, make_gpus, on_node, pod, pod_request, share_node

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, common_unit
from gpucore.model import (
    Allocation,
    AllocationState,
    Code,
    FitError,
    Inventory,
    IsolationMode,
    Placement,
)
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.fit import fit
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

N = NodeName("n")
WHOLE = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
TWO = {NAMES.gpu_count: "2"}


def node(*sizes: int, **labels: str) -> Node:
    """Node n with GPUs of these sizes, which offers shares and exclusive GPUs."""
    return share_node("n", make_gpus(*sizes), whole=True, labels=labels)


def books(book: Ledger) -> NodeInfo:
    """The books of node n."""
    node_info = book.node(N)
    assert node_info is not None
    return node_info


def summary(node_info: NodeInfo) -> object:
    """Every figure of the books."""
    return (
        [(c.index, c.used, c.core_used, c.free, c.core_free, c.taken, c.excess, c.crowd)
         for c in node_info.devices.values()],
        (node_info.pending, node_info.pending_core, node_info.pending_gpus),
        (node_info.free_units(), node_info.reserved_units(), node_info.reserved_gpus()),
        (node_info.max_allocatable_memory, node_info.free_gpus, node_info.used_units,
         dict(node_info.allocations)),
    )  # fmt: skip


IDX = {NAMES.mem_idx: "1"}
HOLDERS = [
    pod("share", 3, core=20, node="n", annotations=IDX),
    pod("alone", 3, core=20, node="n", annotations=IDX, labels=WHOLE),
    pod("group", gpus=2, node="n", annotations={NAMES.group: "1,0"}),
    pod("stray", 3, core=20, node="n"),
    pod("strays", gpus=2, node="n"),
    pod("half", 4, core=20, node="n", annotations=IDX, labels=TWO),
    pod("lost", 3, node="n", annotations={NAMES.mem_idx: "7"}),
    pod("mib", 3000, node="n", annotations={wire_names.UNIT: "MiB"}),
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.name)
def test_a_holding_is_given_back_in_full(holder: Pod) -> None:
    """With another pod beside it, books before it came and after it went are the same."""
    beside = pod("beside", 2, core=10, node="n", annotations=IDX)
    twin = msgspec.structs.replace(holder, uid="uid-twin")
    book = ledger(node(10, 10), beside, twin)
    before = summary(books(book))
    for _ in range(2):
        book.pod_changed(holder)
        book.pod_changed(holder)
        assert summary(books(book)) != before
        book.pod_gone(holder.uid)
        assert summary(books(book)) == before


def test_pending_amounts_follow_the_unit() -> None:
    """3000 MiB of a pod on an unknown GPU are 3 units of a node in GiB."""
    book = ledger(node(10, 10), HOLDERS[-1])
    assert books(book).pending == 3
    assert books(book).used_units == 3


def test_an_assumed_allocation_names_its_pod() -> None:
    """Identity, unit of the node, time and exclusiveness are in the reservation."""
    book = ledger(node(10, 10))
    allocation = assumed(book, "n", pod("p", 4, labels=WHOLE), at=77)
    assert allocation == Allocation(
        uid=pod("p").uid,
        namespace="default",
        name="p",
        state=AllocationState.ASSUMED,
        placement=allocation.placement,
        exclusive=True,
        unit=GIB,
        assume_time=77,
    )
    assert book.allocation(pod("p").uid) is allocation


def test_an_assumption_without_a_node_has_no_unit() -> None:
    """On a node nobody knows, amounts are in whatever unit it will have."""
    allocation = ledger().assume(pod("p", 4), Placement(N, {GpuIndex(0): 4}), now_ns=1)
    assert allocation.unit is None
    assert not allocation.exclusive


@pytest.mark.parametrize(
    ("changed", "room"),
    [
        (node(10, 12), 12),
        (msgspec.structs.replace(node(10, 10), capacity={}), -1),
        (node(10, 10, **{wire_names.LABEL_OVERSELL: "3"}), 30),
    ],
)
def test_each_part_of_a_node_object_is_followed(changed: Node, room: int) -> None:
    """A change of the annotation, of the capacity or of a label alone arrives, and goes again."""
    book = ledger(node(10, 10))
    for state, expected in ((changed, room), (node(10, 10), 10)):
        book.node_changed(state)
        assert book.largest_shares[N] == expected


@pytest.mark.parametrize(
    ("requested", "refusal"),
    [
        (
            pod("p", 5, labels=TWO),
            FitError(N, Code.UNEVEN_SPLIT, unit=GIB, requested=5, total=2, unresolvable=True),
        ),
        (
            pod("p", 5, gpus=1),
            FitError(
                N,
                Code.INVALID_REQUEST,
                unit=GIB,
                detail="it requests both exclusive GPUs and shares; request only one",
                unresolvable=True,
            ),
        ),
    ],
)
def test_a_final_refusal_has_its_figures(requested: Pod, refusal: FitError) -> None:
    """Amount, GPUs and words of a request that no eviction cures."""
    assert on_node(ledger(node(10, 10)), "n", requested) == refusal


def test_a_node_nobody_knows_is_refused_for_good() -> None:
    """The whole of that refusal."""
    _, refused = filter_nodes(ledger(), pod_request(pod("p", 1)), [N])
    assert refused[N] == FitError(N, Code.NODE_UNKNOWN, unresolvable=True)


def test_the_quick_filter_agrees_with_the_gpus() -> None:
    """Every kind of request on every kind of node: sift and fit say the same."""
    plain, mps = (
        make_gpus(10, 10),
        Inventory(
            tuple(
                msgspec.structs.replace(gpu, isolation=IsolationMode.MPS)
                for gpu in make_gpus(10, 10).gpus
            )
        ),
    )
    nodes = [
        share_node("empty", plain, whole=True),
        share_node("mps", mps, whole=True),
        share_node("mib", make_gpus(10, 10, unit=MIB)),
        share_node("small", make_gpus(3, 3), whole=True),
        Node(NodeName("none")),
        Node(NodeName("topology"), capacity={NAMES.gpu: "2"}),
    ]
    pods = [
        pod("a", 9, core=95, node="mib", annotations={NAMES.mem_idx: "0"}),
        pod("b", 1, node="mps", annotations={NAMES.mem_idx: "1"}),
        pod("c", gpus=1, node="topology", annotations={NAMES.group: "0"}),
    ]
    book = ledger(*nodes, *pods)
    names = [each.name for each in nodes]
    wanted = [
        pod("1", 1), pod("10", 10), pod("4", 4, core=10), pod("c", core=50),
        pod("2x", 8, labels=TWO), pod("w", 2, labels=WHOLE),
        pod("m", 1, annotations={wire_names.ISOLATION: "mps"}),
        pod("g", gpus=1), pod("gg", gpus=2), pod("x", 1, labels={NAMES.gpu_count: "x"}),
        pod("19", 18, labels=TWO), pod("c2", core=120, labels=TWO),
    ]  # fmt: skip
    answers = set()
    for requested in map(pod_request, wanted):
        fits, _ = filter_nodes(book, requested, names)
        assert fits == [n for n in names if (a := book.node(n)) and fit(a, requested) is None]
        answers.add(tuple(fits))
    assert len(answers) > 6


@pytest.mark.parametrize("order", [(3, 2), (2, 3)])
def test_lost_gpus_are_in_order_whichever_pod_came_first(order: tuple[int, int]) -> None:
    """The same pods give the same books, and so the same sentences, after any order of events."""
    lost = [pod(f"p{gpu}", 4, node="n", annotations={NAMES.mem_idx: str(gpu)}) for gpu in order]
    node_info = books(ledger(node(15), *lost))
    assert list(node_info.devices) == [0, 2, 3]


def test_too_few_gpus_are_counted_in_gpus() -> None:
    """A share over two GPUs on a node with one: two GPUs are requested, not units of one."""
    refusal = on_node(ledger(share_node("n", make_gpus(15))), "n", pod("p", 8, labels=TWO))
    assert isinstance(refusal, FitError)
    assert (refusal.code, refusal.requested) == (Code.INSUFFICIENT_GPUS, 2)
    assert (refusal.free, refusal.total) == (1, 1)


@pytest.mark.parametrize(
    ("units", "common"),
    [((), None), ((GIB,), GIB), ((MIB, MIB), MIB), ((GIB, MIB), None), ((MIB, GIB), None)],
)
def test_nodes_have_a_common_unit_where_all_of_them_count_in_it(
    units: tuple[MemoryUnit, ...], common: MemoryUnit | None
) -> None:
    """A node without GPUs has none, and does not count."""
    nodes = [share_node(f"n{i}", make_gpus(16, unit=unit)) for i, unit in enumerate(units)]
    assert common_unit(ledger(*nodes, Node(NodeName("no-gpus"))).nodes().values()) == common
