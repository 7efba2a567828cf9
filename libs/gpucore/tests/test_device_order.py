"""First fit over the order of devices is the policy's choice."""

import pytest
from corebuilders import make_gpus
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import (
    Allocation,
    AllocationState,
    ContainerRequest,
    FitError,
    Placement,
    PodRequest,
)
from gpucore.scheduling.device_fit import device_fit_error
from gpucore.scheduling.device_order import device_order, usual_share
from gpucore.scheduling.policy import place
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.workload.pod_mix import HostRoom, PodKind, PodMix

SIZES = st.lists(st.integers(1, 24), min_size=1, max_size=8)
USE = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 24), st.sampled_from([0, 0, 10, 50])))
N1 = NodeName("n1")


def request(units: int) -> PodRequest:
    """One share."""
    return PodRequest((ContainerRequest(mem=units),), mem=units)


def node(sizes: list[int], use: list[tuple[int, int, int]], *, policy: str = "") -> NodeInfo:
    """A node with shares of so many units and percent on its GPUs, as far as they fit."""
    shape = NodeCapacity(inventory=make_gpus(*sizes), offers_shares=True, policy=policy)
    found = NodeInfo(N1, shape)
    for number, (index, units, core) in enumerate(use):
        gpu = GpuIndex(index % len(sizes))
        device = found.devices[gpu]
        if units <= device.free and core <= device.core_free:
            placement = Placement(N1, {gpu: units}, {gpu: core})
            uid = PodUid(f"u{number}")
            found.put(Allocation(uid, "ns", f"c{number}", AllocationState.BOUND, placement))
    return found


def first_fit(found: NodeInfo, order: tuple[GpuIndex, ...], units: int) -> GpuIndex | None:
    """What kube-scheduler allocates."""
    requested = request(units)
    return next((i for i in order if device_fit_error(found.devices[i], requested) is None), None)


def chosen(found: NodeInfo, policy: str, units: int) -> GpuIndex | None:
    """What the extender allocates."""
    answer = place(found, request(units), policy)
    return None if isinstance(answer, FitError) else next(iter(answer.mem))


@given(SIZES, USE, st.sampled_from(["binpack", "spread"]), st.integers(1, 24))
def test_first_fit_is_the_choice_of_binpack_and_spread(
    sizes: list[int], use: list[tuple[int, int, int]], policy: str, units: int
) -> None:
    """For a share of any size, whatever the node holds."""
    found = node(sizes, use)
    assert first_fit(found, device_order(found, policy), units) == chosen(found, policy, units)


@given(SIZES, USE, st.integers(1, 24))
def test_first_fit_is_the_choice_of_fragmentation_for_the_usual_share(
    sizes: list[int], use: list[tuple[int, int, int]], units: int
) -> None:
    """The order is made for one size."""
    found = node(sizes, use)
    order = device_order(found, "fragmentation", usual=units)
    assert first_fit(found, order, units) == chosen(found, "fragmentation", units)


@pytest.mark.slow
@given(SIZES, USE, st.sampled_from(["binpack", "spread", "fragmentation"]))
def test_every_gpu_is_listed_once(
    sizes: list[int], use: list[tuple[int, int, int]], policy: str
) -> None:
    """Full ones too: they take shares again later."""
    found = node(sizes, use)
    assert sorted(device_order(found, policy)) == list(range(len(sizes)))


def test_binpack_lists_the_fullest_gpu_first_and_full_ones_last() -> None:
    """Least free memory first; equal GPUs by index."""
    found = node([16, 16, 16, 16], [(1, 16, 0), (2, 9, 0)])
    assert device_order(found, "binpack") == (2, 0, 3, 1)
    assert device_order(found, "spread") == (0, 3, 2, 1)


def test_the_label_of_the_node_decides_over_the_default() -> None:
    """As for pods of the extender."""
    found = node([16, 16], [(1, 9, 0)], policy="spread")
    assert device_order(found, "binpack") == (0, 1)


def test_the_order_does_not_follow_the_learned_mix() -> None:
    """A device plugin, which publishes it, does not know the mix: it orders by the guess."""
    found = node([16, 16], [(0, 13, 0), (1, 5, 0)])
    by_guess = device_order(found, "fragmentation")
    mix = PodMix({PodKind(mem=12): 0.9, PodKind(): 0.1})
    found.host = HostRoom(mix, "T4", 16, 64_000, 64_000)
    assert chosen(found, "fragmentation", 5) == 1
    assert device_order(found, "fragmentation") == by_guess == (0, 1)
    assert found.host is not None


def test_the_usual_share_is_the_median_of_the_shares_on_the_node() -> None:
    """A quarter of the largest GPU while there are none."""
    assert usual_share(node([16, 8], [])) == 4
    assert usual_share(node([2], [])) == 1
    assert usual_share(node([16, 16], [(0, 3, 0), (0, 5, 0), (1, 9, 0)])) == 5
