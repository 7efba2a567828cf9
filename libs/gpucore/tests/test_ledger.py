"""The ledger, one behaviour at a time; random histories are in the machine."""

import msgspec
import pytest
from corebuilders import (
    NAMES,
    assumed,
    bound,
    ledger,
    legacy_node,
    make_gpus,
    on_node,
    pod,
    share_node,
    used,
)

from gpucore.accounting.ledger import rebuilt
from gpucore.model import AllocationState, Code, FitError, Placement
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.pod.spec import Container

N = NodeName("n")


def test_a_reservation_is_confirmed_by_the_watch() -> None:
    """Assumed, then bound, then confirmed: always one allocation, counted once."""
    book = ledger(legacy_node("n", 15, 1))
    requested = pod("p", 8)
    allocation = assumed(book, "n", requested)
    written = bound(requested, allocation.placement, make_gpus(15))
    states = [allocation.state]
    for assigned in (False, True):
        book.pod_changed(bound(requested, allocation.placement, make_gpus(15), assigned=assigned))
        standing = book.allocation(requested.uid)
        assert standing is not None
        states.append(standing.state)
        assert used(book, "n") == [8]
    assert states == [AllocationState.ASSUMED, AllocationState.BOUND, AllocationState.CONFIRMED]
    assert not book.forget(written.uid)
    assert used(book, "n") == [8]


def test_assuming_again_gives_back_the_decision_that_stands() -> None:
    """A retried bind of a pod gets the placement of the first one."""
    book = ledger(legacy_node("a", 15, 1), legacy_node("b", 15, 1))
    requested = pod("p", 8)
    first = assumed(book, "a", requested, at=1)
    elsewhere = on_node(book, "b", requested)
    assert isinstance(elsewhere, Placement)
    assert book.assume(requested, elsewhere, now_ns=2) is first
    assert used(book, "b") == [0]


def test_an_assumption_on_an_unknown_node_waits_for_it() -> None:
    """An allocation on a node nobody knows opens an account, and closes it when released."""
    book = ledger()
    requested = pod("p", 8)
    book.assume(requested, Placement(N, {GpuIndex(0): 8}), now_ns=1)
    node_info = book.node(N)
    assert node_info is not None
    assert not node_info.present
    assert used(book, "n") == [8]
    assert book.forget(requested.uid)
    assert book.node(N) is None
    assert not book.largest_shares
    assert not book.free_gpu_counts


def test_unconfirmed_reservations_expire_on_time() -> None:
    """Not before their time to live, and only those that nobody confirmed."""
    book = ledger(legacy_node("n", 15, 1))
    early, late = pod("early", 1), pod("late", 1)
    assumed(book, "n", early, at=100)
    allocation = assumed(book, "n", late, at=100)
    book.pod_changed(bound(late, allocation.placement, make_gpus(15)))
    assert book.expire(109, 10) == []
    assert book.expire(110, 10) == [early.uid]
    assert book.expire(999, 10) == []
    assert used(book, "n") == [1]


@pytest.mark.parametrize(
    ("version", "written", "stands"),
    [
        ("6", "7", True),
        ("7", "7", False),
        ("10", "9", False),
        ("7", "", True),
        ("", "", True),
        ("b", "a", True),
        ("a", "a", False),
    ],
)
def test_a_nomination_stands_until_the_watch_is_as_new_as_its_write(
    version: str, written: str, *, stands: bool
) -> None:
    """Older events show the pod as it was before, without the nomination."""
    book = ledger(legacy_node("n", 15, 1))
    pending = pod("p", 8)
    placement = on_node(book, "n", pending)
    assert isinstance(placement, Placement)
    book.nominate(pending, placement, now_ns=1)
    book.nomination_written(pending.uid, written)
    book.pod_changed(msgspec.structs.replace(pending, resource_version=version))
    assert used(book, "n") == [8 if stands else 0]


def test_a_pod_bound_elsewhere_moves_its_claim() -> None:
    """What the watch reports wins over what was assumed, also on another node."""
    book = ledger(legacy_node("a", 15, 1), legacy_node("b", 15, 1))
    requested = pod("p", 8)
    assumed(book, "a", requested)
    book.pod_changed(
        bound(
            requested,
            Placement(NodeName("b"), {GpuIndex(0): 8}, {}, {0: {GpuIndex(0): 8}}),
            make_gpus(15),
        )
    )
    assert (used(book, "a"), used(book, "b")) == ([0], [8])
    assert book.expire(10**18, 1) == []


def test_a_corrected_annotation_moves_the_claim() -> None:
    """After the plugin corrected the GPU only the new GPU counts."""
    book = ledger(legacy_node("n", 30, 2), pod("p", 8, node="n", annotations={NAMES.mem_idx: "0"}))
    assert used(book, "n") == [8, 0]
    book.pod_changed(pod("p", 8, node="n", annotations={NAMES.mem_idx: "1"}))
    assert used(book, "n") == [0, 8]


def test_a_relist_releases_what_is_gone_and_keeps_what_is_under_way() -> None:
    """Claims that are not on the list go, but for reservations whose bind is under way."""
    node = legacy_node("n", 15, 1)
    book = ledger(node, *(pod(n, 2, node="n", annotations={NAMES.mem_idx: "0"}) for n in "ab"))
    waiting = pod("waiting", 4)
    assumed(book, "n", waiting)
    book.relist_pods([pod("a", 2, node="n", annotations={NAMES.mem_idx: "0"}), waiting])
    assert sorted(book.allocations()) == ["uid-a", "uid-waiting"]
    assert used(book, "n") == [6]


def test_a_relist_of_nodes_forgets_those_that_are_gone() -> None:
    """A node that is not on the list is gone; claims on it stay and count again later."""
    gone = legacy_node("gone", 15, 1)
    book = ledger(gone, legacy_node("n", 15, 1), pod("p", 2, node="gone"))
    book.relist_nodes([legacy_node("n", 15, 1), legacy_node("new", 15, 1)])
    assert {name: node_info.present for name, node_info in book.nodes().items()} == {
        "gone": False,
        "n": True,
        "new": True,
    }
    refusal = on_node(book, "gone", pod("q", 1))
    assert isinstance(refusal, FitError)
    assert refusal.code is Code.NODE_UNKNOWN
    book.node_changed(gone)
    node_info = book.node(NodeName("gone"))
    assert node_info is not None
    assert node_info.pending == 2
    book.node_gone(NodeName("never seen"))
    assert NodeName("never seen") not in book.nodes()


def test_a_heartbeat_changes_nothing() -> None:
    """A node object that differs in nothing that matters keeps its account as it is."""
    node = legacy_node("n", 15, 1)
    book = ledger(node)
    node_info = book.node(N)
    assert node_info is not None
    shape = node_info.shape
    book.node_changed(msgspec.structs.replace(node, resource_version="2", ready=True))
    book.node_changed(msgspec.structs.replace(node, annotations={"other": "1"}))
    assert node_info.shape is shape


@pytest.mark.parametrize(("unit", "held"), [(GIB, [8]), (MIB, [8192]), (MemoryUnit(3000), [3])])
def test_a_change_of_unit_converts_what_is_held(unit: MemoryUnit, held: list[int]) -> None:
    """Amounts keep their size in MiB, rounded up in the node's new unit."""
    book = ledger(share_node("n", make_gpus(15)))
    requested = pod("p", 8)
    allocation = assumed(book, "n", requested)
    book.pod_changed(bound(requested, allocation.placement, make_gpus(15)))
    book.node_changed(share_node("n", make_gpus(20_000, unit=unit)))
    assert used(book, "n") == held


def test_a_lost_gpu_keeps_its_holders_and_regains_them() -> None:
    """A GPU that the node lost is kept while somebody holds it, and is never offered."""
    book = ledger(share_node("n", make_gpus(15, 15)))
    book.pod_changed(pod("p", 8, node="n", annotations={NAMES.mem_idx: "1"}))
    book.node_changed(share_node("n", make_gpus(15)))
    node_info = book.node(N)
    assert node_info is not None
    lost = node_info.devices[GpuIndex(1)]
    assert (lost.gpu, lost.total, lost.used, lost.free) == (None, 0, 8, 0)
    assert node_info.overfull == (1,)
    assert node_info.max_allocatable_memory == 15
    book.node_changed(share_node("n", make_gpus(15, 15)))
    assert used(book, "n") == [0, 8]
    assert node_info.overfull == ()
    book.node_changed(share_node("n", make_gpus(15)))
    book.pod_gone(pod("p").uid)
    assert list(node_info.devices) == [0]


def test_unhealthy_gpus_come_back() -> None:
    """An emptied ConfigMap gives the GPUs back; one for an unknown node waits for it."""
    book = ledger(legacy_node("n", 30, 2))
    book.unhealthy_changed(N, frozenset({GpuIndex(0), GpuIndex(1)}))
    assert book.largest_shares[N] == 0
    book.unhealthy_changed(N, frozenset())
    assert book.largest_shares[N] == 15
    book.unhealthy_changed(NodeName("later"), frozenset({GpuIndex(0)}))
    book.node_changed(legacy_node("later", 30, 2))
    node_info = book.node(NodeName("later"))
    assert node_info is not None
    assert [gpu.healthy for gpu in node_info.devices.values()] == [False, True]


def test_a_repeated_config_map_changes_nothing() -> None:
    """The same set of unhealthy GPUs again leaves the account as it is."""
    book = ledger(legacy_node("n", 30, 2))
    book.unhealthy_changed(N, frozenset({GpuIndex(0)}))
    node_info = book.node(N)
    assert node_info is not None
    before = node_info.devices[GpuIndex(0)]
    book.unhealthy_changed(N, frozenset({GpuIndex(0)}))
    assert node_info.devices[GpuIndex(0)] is before


def test_a_second_pod_of_the_name_is_counted_beside_the_first() -> None:
    """After a forced deletion both pods of a StatefulSet may be known for a while."""
    book = ledger(legacy_node("n", 15, 1))
    old = pod("web-0", 5, node="n", annotations={NAMES.mem_idx: "0"})
    new = msgspec.structs.replace(old, uid="uid-new")
    book.pod_changed(old)
    book.pod_changed(new)
    assert used(book, "n") == [10]
    book.pod_gone(old.uid)
    assert used(book, "n") == [5]


def test_an_unbound_event_of_a_bound_pod_is_old_news() -> None:
    """A pod is never unbound; a late event of the time before changes nothing."""
    book = ledger(legacy_node("n", 15, 1), pod("p", 5, node="n", annotations={NAMES.mem_idx: "0"}))
    book.pod_changed(pod("p", 5))
    assert used(book, "n") == [5]


def test_a_whole_device_keeps_others_out() -> None:
    """A share that has its GPU to itself is exclusive from the moment it is assumed."""
    labels = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    book = ledger(legacy_node("n", 15, 1))
    assumed(book, "n", pod("p", 8, labels=labels))
    refusal = on_node(book, "n", pod("q", 1))
    assert isinstance(refusal, FitError)
    assert [gpu.code for gpu in refusal.gpus] == [Code.TAKEN_WHOLE]


def test_an_impossible_amount_is_the_modules_error_and_changes_nothing() -> None:
    """A limit that is no quantity raises WireError and leaves the books."""
    book = ledger(legacy_node("n", 15, 1))
    requests = Container(limits={NAMES.gpu_mem: "x"})
    with pytest.raises(WireError):
        book.pod_changed(msgspec.structs.replace(pod("p", node="n"), containers=(requests,)))
    assert not book.allocations()


def test_rebuilding_from_lists() -> None:
    """A ledger of lists has the nodes and the allocations of the lists."""
    node = legacy_node("n", 15, 1)
    book = rebuilt(NAMES, [node], [pod("p", 5, node="n", annotations={NAMES.mem_idx: "0"})])
    assert used(book, "n") == [5]
    assert book.largest_shares == {N: 10}
    assert book.free_gpu_counts == {N: -1}
