"""What a bound pod holds was written at its bind; tenants cannot change it afterwards."""

from typing import Final

import msgspec
import pytest
from corebuilders import NAMES, bound, make_gpus, pod
from hypothesis import given
from hypothesis import strategies as st

from gpucore.model import Allocation, Placement
from gpucore.units import GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Container, Pod

ALONE: Final = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
GPUS: Final = make_gpus(80, 80, 80, 80)

texts = st.sampled_from(["", "0", "1", "2", "40", "1023", "mps", "spread", "simple", "x"])
labels = st.dictionaries(
    st.sampled_from([NAMES.gpu_count, wire_names.LABEL_REQUIRE_WHOLE]),
    texts | st.just(wire_names.REQUIRE_WHOLE_DEVICE),
)
annotations = st.dictionaries(
    st.sampled_from([wire_names.POLICY, wire_names.ISOLATION, wire_names.TOPOLOGY]), texts
)


def held(of: Pod) -> Allocation:
    """What a bound pod holds."""
    found = allocation_of(of, NAMES)
    assert found is not None
    return found


def share(units: int, *, core: int = 0, alone: bool = False) -> Pod:
    """A pod as it is right after its bind to GPU 1."""
    index = GpuIndex(1)
    compute = {index: core} if core else {}
    place = Placement(NodeName("n"), {index: units}, compute, {0: {index: units}})
    return bound(pod("p", units, core=core, labels=ALONE if alone else {}), place, GPUS)


@given(st.booleans(), st.sampled_from([0, 40]), labels, annotations)
def test_labels_and_wishes_of_a_bound_pod_change_nothing(
    alone: bool, core: int, changed: dict[str, str], added: dict[str, str]
) -> None:
    """Whatever a tenant makes of them after the bind, the account is the same."""
    before = share(40, core=core, alone=alone)
    after = msgspec.structs.replace(before, labels=changed, annotations=before.annotations | added)
    assert held(after) == held(before)


@pytest.mark.parametrize("in_init", [False, True])
def test_annotations_from_before_the_bind_change_nothing(*, in_init: bool) -> None:
    """The Binding replaces what a tenant gave its pod, also where no container has a share."""
    forged = {
        **dict.fromkeys((wire_names.V2_ALLOCATION, wire_names.V3_MEMORY), '{"0": {"3": 4000}}'),
        wire_names.V3_CORE_PERCENTAGE: '{"0": {"3": 100}}',
        wire_names.UNIT: "MiB",
        wire_names.EXCLUSIVE: "true",
        NAMES.mem_idx: "3",
    }
    index, waiting = GpuIndex(1), pod("p", 40)
    if in_init:
        inits = (Container(limits=waiting.containers[0].limits),)
        waiting = msgspec.structs.replace(pod("p"), init_containers=inits)
    place = Placement(NodeName("n"), {index: 40}, {}, {} if in_init else {0: {index: 40}})
    clean = bound(waiting, place, GPUS)
    merged = msgspec.structs.replace(clean, annotations=forged | clean.annotations)
    assert held(merged) == held(clean)
    assert held(clean).placement.mem == {1: 40}
    assert held(clean).faults == ()


def test_a_bound_pod_takes_no_whole_gpu_by_a_label() -> None:
    """The label of exclusive GPUs counts when it is there at the bind, not when it comes later."""
    assert not held(msgspec.structs.replace(share(1), labels=ALONE)).exclusive
    assert held(msgspec.structs.replace(share(1, alone=True), labels={})).exclusive


def test_an_unreadable_record_falls_back_to_the_label() -> None:
    """Text that is neither true nor false is a fault; without a record the label counts."""
    texts = share(1).annotations | {wire_names.EXCLUSIVE: "maybe"}
    allocation = held(msgspec.structs.replace(share(1), annotations=texts, labels=ALONE))
    assert allocation.exclusive
    assert allocation.faults == (f"annotation {wire_names.EXCLUSIVE} is neither true nor false",)
