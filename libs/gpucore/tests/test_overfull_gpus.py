"""A GPU that holds more than it has, and what is left of the other GPUs of its node."""

import pytest
from corebuilders import NAMES, bound, ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Placement
from gpucore.scheduling.fit import fit
from gpucore.units import GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.pod.spec import Pod

GPUS = 3
UNITS = 8
Holder = tuple[int, int, bool]
"""Units of a running pod, its GPU, and whether it is confirmed."""


def running(name: str, units: int, gpu: int, *, confirmed: bool, **more: str) -> Pod:
    """A pod on a GPU of node n."""
    on = {GpuIndex(gpu): units}
    placement = Placement(NodeName("n"), on, {}, {0: on})
    gpus = make_gpus(*[UNITS] * GPUS)
    return bound(pod(name, units, labels=more), placement, gpus, assigned=confirmed)


def node_with(*pods: Pod) -> NodeInfo:
    """Node n with these pods."""
    found = ledger(share_node("n", make_gpus(*[UNITS] * GPUS), whole=True), *pods)
    node_info = found.node(NodeName("n"))
    assert node_info is not None
    return node_info


def over(*, confirmed: bool) -> NodeInfo:
    """Two pods of a former oversell on GPU 0, which has room for one."""
    return node_with(*(running(name, UNITS, 0, confirmed=confirmed) for name in ("a", "b")))


def test_confirmed_pods_close_no_gpu_but_their_own() -> None:
    """The oversell was lowered, or the reserve raised: two GPUs are as free as they look."""
    node_info = over(confirmed=True)
    assert node_info.overfull == (0,)
    assert (node_info.reserved_units(), node_info.max_allocatable_memory) == (0, UNITS)
    assert fit(node_info, pod_request(pod("p", UNITS))) is None
    spread = pod("p", 2 * UNITS, labels={NAMES.gpu_count: "2"})
    assert fit(node_info, pod_request(spread)) is None


def test_a_pod_that_a_correction_may_move_keeps_its_units_free() -> None:
    """It may be on a GPU that looks free."""
    spread = pod("p", 2 * UNITS, labels={NAMES.gpu_count: "2"})
    for last in (False, True):
        node_info = node_with(
            running("a", UNITS, 0, confirmed=last), running("b", UNITS, 0, confirmed=False)
        )
        assert node_info.reserved_units() == UNITS
        assert fit(node_info, pod_request(spread)) is not None


@pytest.mark.parametrize(("confirmed", "left"), [(True, GPUS - 1), (False, GPUS - 2)])
def test_confirmed_pods_beside_an_exclusive_one_close_no_gpu(confirmed: bool, left: int) -> None:
    """The other GPUs are given away whole, unless a pod may be on one of them."""
    alone = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    node_info = node_with(
        running("a", 2, 0, confirmed=True, **alone), running("b", 2, 0, confirmed=confirmed)
    )
    assert node_info.free_gpus == left
    assert node_info.overfull == (0,)


@pytest.mark.parametrize(("pods", "overfull"), [(2, ()), (3, (0,))])
def test_a_gpu_with_as_many_pods_as_it_takes_is_not_overfull(
    pods: int, overfull: tuple[int, ...]
) -> None:
    """One more came before the limit of the node was set."""
    holders = [running(f"p{number}", 1, 0, confirmed=True) for number in range(pods)]
    node = share_node("n", make_gpus(UNITS), labels={wire_names.LABEL_MAX_POD: "2"})
    node_info = ledger(node, *holders).node(NodeName("n"))
    assert node_info is not None
    assert node_info.overfull == overfull


@given(
    st.lists(st.tuples(st.integers(1, UNITS), st.integers(0, GPUS - 1), st.booleans()), max_size=8)
)
def test_only_the_excess_of_movable_pods_is_kept_free(holders: list[Holder]) -> None:
    """On each GPU no more than is beyond its size, and no more than these pods have."""
    node_info = node_with(
        *(running(f"p{i}", *each[:2], confirmed=each[2]) for i, each in enumerate(holders))
    )
    expected = 0
    for gpu in range(GPUS):
        here = [each for each in holders if each[1] == gpu]
        beyond = max(sum(units for units, _, _ in here) - UNITS, 0)
        expected += min(beyond, sum(units for units, _, confirmed in here if not confirmed))
    assert node_info.reserved_units() == expected
    if all(confirmed for _, _, confirmed in holders):
        free = [UNITS - sum(each[0] for each in holders if each[1] == gpu) for gpu in range(GPUS)]
        assert node_info.max_allocatable_memory == max(*free, 0)
