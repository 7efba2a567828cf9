"""Annotations of a placement, and that they read back as what was placed."""

import msgspec
import pytest
from corebuilders import NAMES, bound, ledger, make_gpus, on_node, pod, pod_request, share_node
from hypothesis import assume, given
from hypothesis import strategies as st

from gpucore.model import FitError, Placement
from gpucore.units import GIB, GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import annotations_of, split_evenly
from gpucore.wire.pod.spec import Container


def test_both_generations_and_the_unit() -> None:
    """A share writes V1, V2, the unit, and V3 only for compute."""
    requested = pod("p", (3, 5), core=40)
    mem = {GpuIndex(1): 8}
    place = Placement(
        NodeName("n"), mem, {GpuIndex(1): 40}, {0: {GpuIndex(1): 3}, 1: {GpuIndex(1): 5}}
    )
    texts = annotations_of(
        place,
        pod_request(requested),
        NAMES,
        inventory=make_gpus(15, 16),
        assume_time=7,
        assigned=True,
    )
    assert texts == {
        NAMES.mem_idx: "1",
        NAMES.mem_dev: "16",
        NAMES.mem_pod: "8",
        NAMES.mem_assigned: "true",
        NAMES.mem_assume_time: "7",
        wire_names.V2_ALLOCATION: '{"0":{"1":3},"1":{"1":5}}',
        wire_names.V2_ASSIGNED: "true",
        wire_names.V2_ASSUME_TIME: "7",
        wire_names.V3_CORE_PERCENTAGE: '{"0":{"1":40}}',
        wire_names.UNIT: "GiB",
        wire_names.EXCLUSIVE: "false",
    }


def test_whole_gpus_write_the_group() -> None:
    """Exclusive GPUs write the group's annotations and no share's."""
    place = Placement(NodeName("n"), group=(GpuIndex(2), GpuIndex(0)))
    texts = annotations_of(
        place, pod_request(pod("p", gpus=2)), NAMES, inventory=make_gpus(15, 15, 15), assume_time=7
    )
    assert texts == {
        "ALIYUN_COM_GPU_GROUP": "2,0",
        "topology.kubernetes.io/gpu-group": "2,0",
        "topology.kubernetes.io/gpu-visible": "2,0",
        "ALIYUN_COM_GPU_ASSIGNED": "false",
        "ALIYUN_COM_GPU_ASSUME_TIME": "7",
    }


def test_a_gpu_that_is_gone_has_no_units() -> None:
    """DEV of a GPU that the inventory lacks is 0, and an unknown unit is not written."""
    place = Placement(NodeName("n"), {GpuIndex(5): 3}, {}, {0: {GpuIndex(5): 3}})
    texts = annotations_of(
        place, pod_request(pod("p", 3)), NAMES, inventory=make_gpus(15, unit=None), assume_time=7
    )
    assert texts[NAMES.mem_dev] == "0"
    assert wire_names.UNIT not in texts


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=5),
    st.lists(st.integers(0, 15).map(GpuIndex), min_size=1, max_size=6, unique=True),
)
def test_containers_are_spread_evenly(amounts: list[int], indexes: list[GpuIndex]) -> None:
    """Each container keeps its amount; GPUs' totals differ by at most one, or not at all."""
    split = split_evenly(amounts, indexes)
    assert {i: sum(row.values()) for i, row in split.items()} == {
        i: amount for i, amount in enumerate(amounts) if amount
    }
    totals = [sum(row.get(index, 0) for row in split.values()) for index in indexes]
    assert max(totals) - min(totals) <= (sum(amounts) % len(indexes) != 0)
    assert all(units > 0 for row in split.values() for units in row.values())


@pytest.mark.slow
@given(
    mems=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    core=st.integers(0, 60),
    init=st.integers(0, 12),
    count=st.integers(1, 3),
    assigned=st.booleans(),
)
def test_what_is_placed_reads_back(
    mems: list[int], core: int, init: int, count: int, *, assigned: bool
) -> None:
    """The claim of the written annotations is the placement, without faults or pending parts."""
    labels = {NAMES.gpu_count: str(count)}
    inits = (Container(limits={NAMES.gpu_mem: str(init)}),)
    requested = msgspec.structs.replace(
        pod("p", mems, core=core, labels=labels), init_containers=inits
    )
    total = max(sum(mems), init)
    assume(total + core > 0 and total % count == 0 and core % count == 0)
    inventory = make_gpus(30, 30, 30)
    placement = on_node(ledger(share_node("n", inventory)), "n", requested)
    first = next((mem for mem in mems if mem), 0)  # it uses the init container's devices again
    refused = count > 1 and init > first
    assert isinstance(placement, FitError if refused else Placement)
    if isinstance(placement, FitError):
        return
    allocation = allocation_of(
        bound(requested, placement, inventory, assigned=assigned, at=9), NAMES
    )
    assert allocation is not None
    assert allocation.placement.mem == placement.mem
    assert allocation.placement.core == placement.core
    assert (allocation.pending, allocation.pending_core, allocation.faults) == (0, 0, ())
    assert (allocation.unit, allocation.assume_time) == (GIB, 9)


@pytest.mark.parametrize(
    ("mem", "core", "gpus", "fault"),
    [
        (1, 0, 2, "over 2 GPUs its containers request memory of 1"),
        (0, 0, 3, "over 3 GPUs its containers request memory of 0"),
        (4, 1, 2, "over 2 GPUs its containers request compute of 1"),
        (6, 6, 2, ""),
        (0, 0, 1, ""),
    ],
)
def test_a_pod_of_which_only_an_init_container_uses_a_gpu_is_refused(
    mem: int, core: int, gpus: int, fault: str
) -> None:
    """Nothing in its annotations could name that GPU: the ledger would not count it there."""
    init = Container(limits={NAMES.gpu_mem: "6", NAMES.gpu_core: "6"})
    requested = msgspec.structs.replace(
        pod("p", mem, core=core, labels={NAMES.gpu_count: str(gpus)}), init_containers=(init,)
    )
    assert pod_request(requested).fault.partition(",")[0] == fault
