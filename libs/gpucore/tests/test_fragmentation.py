"""How much of what is free the usual work cannot use."""

import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.model import Allocation, AllocationState, Placement
from gpucore.scheduling.fragmentation import growth, steps
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.node.spec import Node
from gpucore.workload.kinds import TYPICAL, Kind, Workload

FREE = st.lists(st.integers(0, 1000), max_size=8).map(lambda parts: tuple(sorted(parts)))


@pytest.mark.parametrize(
    ("free", "kinds", "lost"),
    [
        ((), [Kind(1, 500)], 0.0),
        ((1000,), [Kind(1, 500)], 0.0),
        ((400, 1000), [Kind(1, 500)], 0.4),
        ((400, 400), [Kind(1, 500)], 0.8),
        ((500,), [Kind(1, 500)], 0.0),
        ((400, 1000), [Kind(1, 1000, 2)], 1.4),
        ((400, 1000, 1000), [Kind(1, 1000, 2)], 0.4),
        ((400, 1000), [Kind(3, 500), Kind(1, 1000, 2)], 0.75 * 0.4 + 0.25 * 1.4),
        ((300, 400, 1000), [Kind(1, 400, 2)], 0.3),
        ((300, 600), [Kind(1, 500), Kind(1, 700), Kind(2, 200)], 0.25 * 0.3 + 0.25 * 0.9),
    ],
)
def test_what_is_lost(free: tuple[int, ...], kinds: list[Kind], lost: float) -> None:
    """Parts that are too small are lost to a kind; all is lost to one that does not fit."""
    assert Workload(kinds).fragmentation(free) == pytest.approx(lost)


def test_hopeless_work_loses_everything() -> None:
    """Work that could not run here whatever the GPUs makes all of them fragments."""
    workload = Workload([Kind(1, 100)], unresolvable=3.0)
    assert workload.fragmentation((1000,)) == pytest.approx(0.75)


def test_no_work_loses_nothing() -> None:
    """Without any usual work there is nothing to keep room for."""
    assert Workload([]).fragmentation((300,)) == 0.0


@given(FREE)
def test_fragmentation_is_between_nothing_and_all(free: tuple[int, ...]) -> None:
    """Never negative, never more than is free."""
    assert 0.0 <= TYPICAL.fragmentation(free) <= sum(free) / 1000 + 1e-9


def test_memory_of_answers_is_bounded() -> None:
    """More different questions than are remembered still get their answers."""
    workload = Workload([Kind(1, 500)])
    for part in range((1 << 12) + 2):
        assert workload.fragmentation((part,)) == (part / 1000 if part < 500 else 0.0)


def test_growth_is_the_difference_that_a_placement_makes() -> None:
    """A half on an empty GPU loses nothing to halves; a third leaves two thirds that are lost."""
    book = ledger(share_node("n", make_gpus(12), whole=True))
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    halves = Workload([Kind(1, 500)])
    whole = Workload([Kind(1, 1000)])

    def grown(workload: Workload, mem: int = 0, core: int = 0) -> float:
        where = Placement(NodeName("n"), {GpuIndex(0): mem}, {GpuIndex(0): core})
        return growth(node_info, where, workload)

    assert grown(halves, 6) == 0.0
    assert grown(halves, 9) == pytest.approx(0.25)
    assert grown(whole, 3) == pytest.approx(0.75)
    assert grown(whole, 0, 40) == pytest.approx(0.6)
    assert grown(whole, 3, 90) == pytest.approx(0.1)
    assert growth(node_info, Placement(NodeName("n"), group=(GpuIndex(0),)), whole) == 0.0


def test_growth_with_less_work_afterwards() -> None:
    """Where the placement leaves the node fit for less work, free GPUs become fragments."""
    book = ledger(share_node("n", make_gpus(12)))
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    before, after = Workload([Kind(1, 500)]), Workload([], unresolvable=1.0)
    assert growth(node_info, Placement(NodeName("n")), before, after) == pytest.approx(1.0)


def test_gpus_of_unknown_memory_are_free_or_not() -> None:
    """On an original topology node a GPU is free until somebody has it."""
    node = Node(NodeName("n"), capacity={NAMES.gpu: "2"})
    book = ledger(node, pod("g", gpus=1, node="n", annotations={NAMES.group: "1"}))
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    assert node_info.free_parts() == {0: 1000, 1: 0}
    whole = Workload([Kind(1, 1000, 2)])
    assert growth(node_info, Placement(NodeName("n"), group=(GpuIndex(0),)), whole) == -1.0
    assert growth(node_info, Placement(NodeName("n"), {}, {GpuIndex(0): 5}), whole) == 0.0


@pytest.mark.parametrize(("mem", "core", "left"), [(3, 90, 100), (9, 10, 250)])
def test_memory_or_compute_is_left_whichever_is_scarcer(mem: int, core: int, left: int) -> None:
    """A share of much compute leaves memory that no other share can use."""
    found = ledger(share_node("n", make_gpus(12))).node(NodeName("n"))
    assert found is not None
    held = Placement(NodeName("n"), {GpuIndex(0): mem}, {GpuIndex(0): core})
    node_info = found.copy()
    node_info.put(Allocation(PodUid("p"), "", "p", AllocationState.BOUND, held))
    assert node_info.free_parts() == {0: left}


def test_gpus_that_are_not_healthy_are_no_fragments() -> None:
    """What cannot be given out is not counted, nor is a placement on it."""
    book = ledger(share_node("n", make_gpus(12, 12)))
    book.unhealthy_changed(NodeName("n"), frozenset({GpuIndex(1)}))
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    assert node_info.free_parts() == {0: 1000}
    elsewhere = Placement(NodeName("n"), {GpuIndex(1): 3})
    assert growth(node_info, elsewhere, TYPICAL) == 0.0


@pytest.mark.parametrize(("grown", "count"), [(0.0, 0), (0.019, 0), (0.021, 1), (-0.05, -1)])
def test_small_differences_of_growth_are_none(grown: float, count: int) -> None:
    """Placements are compared in steps of 0.04 GPUs."""
    assert steps(grown) == count
