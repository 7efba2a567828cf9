"""Acceptance cases A1 to A15 that the core decides, by their names in the reference."""

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
    pod_request,
    share_node,
    used,
)

from gpucore.accounting.ledger import Ledger
from gpucore.explain.sentences import sentence
from gpucore.model import AllocationState, Code, FitError, Placement
from gpucore.scheduling.filter import filter_nodes
from gpucore.units import MIB, GpuIndex, NodeName
from gpucore.wire.node.inventories import unhealthy_indexes
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.placements import annotations_of

LEGACY = "Insufficient GPU Memory in one device"


def filled(name: str, total: int, *free: int) -> list[Node | object]:
    """A node in MiB whose GPUs have so much free, and the pods that hold the rest."""
    inventory = make_gpus(*[total] * len(free), unit=MIB)
    things: list[Node | object] = [share_node(name, inventory)]
    for index, left in enumerate(free):
        if left < total:
            held = pod(f"{name}-{index}", total - left)
            units = {GpuIndex(index): total - left}
            where = Placement(NodeName(name), units, {}, {0: units})
            things.append(bound(held, where, inventory))
    return things


def test_a1_best_fit_takes_the_gpu_that_is_left_fullest() -> None:
    """A1: with 12207, 8138, 4069 and 16276 MiB free, 8138 go to GPU 1."""
    book = ledger(*filled("n", 16276, 12207, 8138, 4069, 16276))
    placement = on_node(book, "n", pod("p", 8138))
    assert isinstance(placement, Placement)
    assert placement.mem == {1: 8138}


def test_a2_free_memory_must_be_on_one_gpu() -> None:
    """A2: of N1 (4069 free), N2 (4069 + 4069) and N3 (8138 on GPU 0) only N3 takes 8138."""
    things = [
        *filled("N1", 16276, 4069, 0),
        *filled("N2", 16276, 4069, 4069),
        *filled("N3", 16276, 8138, 0),
    ]
    names = [NodeName("N1"), NodeName("N2"), NodeName("N3")]
    fits, refused = filter_nodes(ledger(*things), pod_request(pod("p", 8138)), names)
    assert fits == ["N3"]
    assert list(refused) == ["N1", "N2"]
    assert all(sentence(refused[name]).startswith(LEGACY) for name in refused)


def test_a3_small_shares_fill_the_first_gpu() -> None:
    """A3: three pods of 2 on two GPUs of 15 all sit on GPU 0."""
    book = ledger(legacy_node("n", 30, 2))
    seen = []
    for name in ("a", "b", "c"):
        assumed(book, "n", pod(name, 2))
        seen.append(used(book, "n"))
    assert seen == [[2, 0], [4, 0], [6, 0]]


def test_a4_an_amount_in_the_wrong_unit_is_refused_with_a_hint() -> None:
    """A4: 16276 on a node in GiB never fits; the sentence states what MiB would be."""
    book = ledger(share_node("n", make_gpus(16, 15)))
    refusal = on_node(book, "n", pod("p", 16276))
    assert isinstance(refusal, FitError)
    assert refusal.code is Code.TOO_LARGE
    assert refusal.unresolvable
    assert sentence(refusal) == (
        f"{LEGACY}: no GPU can take 16276 GiB: GPU 0 has 16 in total, GPU 1 has 15 in total; "
        "if you meant MiB, request 16"
    )


def test_a5_three_replicas_on_two_nodes_add_up() -> None:
    """A5: 3 GiB each, two pods on one node and one on the other, are 6/15, 3/15 and 9/30."""
    book = ledger(legacy_node("n1", 15, 1), legacy_node("n2", 15, 1))
    for name, node in (("0", "n1"), ("1", "n2"), ("2", "n1")):
        assumed(book, node, pod(name, 3))
    assert used(book, "n1") == [6]
    assert used(book, "n2") == [3]
    totals = [(node_info.used_units, node_info.total_units) for node_info in book.nodes().values()]
    assert sum(held for held, _ in totals) == 9
    assert sum(total for _, total in totals) == 30


def test_a6_the_sequence_of_the_reference() -> None:
    """A6: 3, 3, 3, 8, 8, 4 on two GPUs of 15 go to 0, 0, 0, 1, nowhere, 0."""
    book = ledger(legacy_node("n", 30, 2))
    placed: list[int | None] = []
    for number, units in enumerate((3, 3, 3, 8, 8, 4)):
        requested = pod(str(number), units)
        placement = on_node(book, "n", requested)
        if isinstance(placement, FitError):
            free = [(gpu.free, gpu.total) for gpu in placement.gpus]
            assert free == [(6, 15), (7, 15)]
            placed.append(None)
            continue
        book.assume(requested, placement, now_ns=1)
        placed.append(next(iter(placement.mem)))
    assert placed == [0, 0, 0, 1, None, 0]


def test_a7_annotations_of_a_bind() -> None:
    """A7: IDX, DEV = total // count, POD, ASSIGNED false and ASSUME_TIME in nanoseconds."""
    book = ledger(legacy_node("n", 31, 2))
    requested = pod("p", 3)
    placement = on_node(book, "n", requested)
    node_info = book.node(NodeName("n"))
    assert isinstance(placement, Placement)
    assert node_info is not None
    assert node_info.inventory is not None
    now = 1_700_000_000_123_456_789
    texts = annotations_of(
        placement, pod_request(requested), NAMES, inventory=node_info.inventory, assume_time=now
    )
    first_generation = {key: value for key, value in texts.items() if key.startswith("ALIYUN")}
    assert first_generation == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": str(now),
    }


def test_a8_another_uid_is_another_pod() -> None:
    """A8: a pod re-created under the same name holds nothing of what the first one held."""
    book = ledger(legacy_node("n", 15, 1))
    first = pod("p", 3)
    assumed(book, "n", first)
    second = msgspec.structs.replace(first, uid="uid-of-another")
    assert book.allocation(first.uid) is not None
    assert book.allocation(second.uid) is None


def test_a9_a_failed_bind_leaves_no_trace_and_can_be_retried() -> None:
    """A9: forgetting gives the units back, and the next attempt decides anew."""
    book = ledger(legacy_node("n", 30, 2))
    requested = pod("p", 8)
    first = assumed(book, "n", requested, at=1)
    assert used(book, "n") == [8, 0]
    assert book.forget(requested.uid)
    assert used(book, "n") == [0, 0]
    second = assumed(book, "n", requested, at=2)
    assert (first.assume_time, second.assume_time) == (1, 2)
    assert used(book, "n") == [8, 0]


def test_a12_a_normal_node_is_refused_with_the_original_text() -> None:
    """A12: a node without the resource is refused by the text that tools look for."""
    book = ledger(Node(NodeName("X")))
    refusal = on_node(book, "X", pod("p", 1))
    assert isinstance(refusal, FitError)
    assert sentence(refusal) == "The node X is not for GPU share, need skip"
    assert refusal.unresolvable


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a13_a_finished_job_gives_its_memory_back(phase: str) -> None:
    """A13: units are free again once the pod's phase is final."""
    node = legacy_node("n", 15, 1)
    book = ledger(node)
    requested = pod("job", 2)
    allocation = assumed(book, "n", requested)
    running = bound(requested, allocation.placement, make_gpus(15))
    book.pod_changed(running)
    assert used(book, "n") == [2]
    book.pod_changed(msgspec.structs.replace(running, phase=phase))
    assert used(book, "n") == [0]


def test_a14_gpus_of_the_config_map_are_not_used() -> None:
    """A14: with ``0,2`` unhealthy of four GPUs only 1 and 3 are chosen."""
    book = ledger(legacy_node("n", 60, 4))
    book.unhealthy_changed(NodeName("n"), unhealthy_indexes("0,2"))
    chosen = []
    for name in ("a", "b", "c"):
        allocation = assumed(book, "n", pod(name, 10)) if name != "c" else None
        chosen += list(allocation.placement.mem) if allocation else []
    assert chosen == [1, 3]
    refusal = on_node(book, "n", pod("c", 10))
    assert isinstance(refusal, FitError)
    assert [gpu.code for gpu in refusal.gpus] == [
        Code.UNHEALTHY,
        Code.INSUFFICIENT_MEMORY,
        Code.UNHEALTHY,
        Code.INSUFFICIENT_MEMORY,
    ]


def test_a15_a_restart_finds_the_same_books() -> None:
    """A15: a ledger that is built from lists equals the one that lived through it."""
    node = legacy_node("n", 30, 2)
    lived = ledger(node)
    pods = []
    for name, units in (("a", 3), ("b", 14), ("c", 5)):
        requested = pod(name, units)
        allocation = assumed(lived, "n", requested)
        pods.append(bound(requested, allocation.placement, make_gpus(15, 15), assigned=True))
        lived.pod_changed(pods[-1])
    restarted = Ledger(NAMES)
    restarted.relist_nodes([node])
    restarted.relist_pods(pods)
    assert used(restarted, "n") == used(lived, "n") == [8, 14]
    assert restarted.allocations() == lived.allocations()
    assert {allocation.state for allocation in restarted.allocations().values()} == {
        AllocationState.CONFIRMED
    }
