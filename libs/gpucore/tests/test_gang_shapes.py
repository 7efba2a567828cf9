"""What a place of a gang is for, compared with what pods request."""

import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given
from hypothesis import strategies as st

from gpucore.gang.able_nodes import shape_of, shape_of_place
from gpucore.model import Allocation, AllocationState, Placement, PodRequest
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid

NODE = ledger(share_node("n", make_gpus(*[16] * 4), whole=True)).nodes()[NodeName("n")]


def requested(mem: int = 0, core: int = 0, gpus: int = 0, count: int = 1) -> PodRequest:
    """What such a pod requests; ``count`` GPUs for a share."""
    labels = {NAMES.gpu_count: str(count)} if count > 1 else {}
    return pod_request(pod("p", mem, core=core, gpus=gpus, labels=labels))


def place_for(request: PodRequest) -> Allocation:
    """A place on an empty node."""
    found = place(NODE, request)
    assert isinstance(found, Placement), found
    alone, state = request.whole_device, AllocationState.RESERVED
    return Allocation(PodUid("gang"), "default", "", state, found, exclusive=alone)


@given(mem=st.integers(0, 16), core=st.integers(0, 25), count=st.integers(1, 4))
def test_a_place_has_the_shape_of_the_share_that_it_was_chosen_for(
    mem: int, core: int, count: int
) -> None:
    """Of one GPU or several, by memory or compute."""
    request = requested(max(mem, 1 - core) * count, core * count, count=count)
    assert shape_of_place(place_for(request)) == shape_of(request)


def test_a_place_has_the_shape_of_the_exclusive_gpus_that_it_was_chosen_for() -> None:
    """By their number."""
    for gpus in range(1, 5):
        assert shape_of_place(place_for(requested(gpus=gpus))) == shape_of(requested(gpus=gpus))


@pytest.mark.parametrize(
    "other",
    [
        requested(mem=8),
        requested(mem=4, core=10),
        requested(mem=8, count=2),
        requested(gpus=1),
    ],
)
def test_requests_that_need_something_else_have_other_places(other: PodRequest) -> None:
    """Memory, compute, the number of GPUs and exclusive GPUs count."""
    assert shape_of(other) != shape_of(requested(mem=4))
