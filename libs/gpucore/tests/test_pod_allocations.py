"""What a bound pod holds: three generations of annotations, never counted less."""

from typing import Any

import msgspec
import pytest
from corebuilders import NAMES, limits, pod

from gpucore.model import Allocation, AllocationState
from gpucore.units import MIB
from gpucore.wire import names as wire_names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Container

V2, V3, IDX = wire_names.V2_ALLOCATION, wire_names.V3_MEMORY, NAMES.mem_idx


def allocated(
    mem: int | tuple[int, ...] = 8, texts: dict[str, str] | None = None, **kw: Any
) -> Allocation:
    """The claim of a pod on node n with these annotations."""
    found = allocation_of(pod("p", mem, node="n", annotations=texts, **kw), NAMES)
    assert found is not None
    return found


def test_v1_index() -> None:
    """IDX names the GPU, the specification the amount."""
    allocation = allocated(8, {IDX: "1"})
    assert allocation.placement.mem == {1: 8}
    assert allocation.placement.containers == {0: {1: 8}}
    assert (allocation.pending, allocation.faults) == (0, ())


def test_the_annotated_amount_is_not_trusted() -> None:
    """An edited POD annotation changes nothing."""
    assert allocated(8, {IDX: "1", NAMES.mem_pod: "1"}).placement.mem == {1: 8}


def test_v2_map_wins_over_v1() -> None:
    """Two containers on one GPU, as the map specifies (C6)."""
    allocation = allocated((1, 7), {V2: '{"0":{"1":1},"1":{"1":7}}', IDX: "0"})
    assert allocation.placement.mem == {1: 8}
    assert allocation.placement.containers == {0: {1: 1}, 1: {1: 7}}


def test_v3_map_is_read() -> None:
    """The third generation's map is read as the second's."""
    allocation = allocated((4, 4), {V3: '{"0":{"0":4},"1":{"2":4}}', IDX: "1"})
    assert allocation.placement.mem == {0: 4, 2: 4}


def test_v2_wins_over_v3() -> None:
    """Of two good maps the second generation's holds: it is the one that is kept corrected."""
    allocation = allocated(8, {V2: '{"0":{"1":8}}', V3: '{"0":{"2":8}}'})
    assert allocation.placement.mem == {1: 8}


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        '{"x":{"1":8}}',
        '{"0":{"x":8}}',
        '{"0":{"1":-8}}',
        '{"0":{"1":1e99}}',
        '{"0":{"1":"8"}}',
        '{"0":{}}',
        "{}",
        "null",
        '{"0":{"-1":8}}',
        '{"0":{"1":8}',
        "[" * 100_000,
    ],
)
def test_a_broken_map_falls_back_to_the_index(broken: str) -> None:
    """A map that is none is a fault, and V1 is read."""
    allocation = allocated(8, {V2: broken, IDX: "1"})
    assert allocation.placement.mem == {1: 8}
    assert allocation.faults == (f"annotation {V2} does not name a GPU",)


@pytest.mark.parametrize("index", ["-1", "x", "", " 1", "1.0", "1024", "١"])  # noqa: RUF001
def test_without_a_gpu_the_amount_is_pending(index: str) -> None:
    """An index that is none leaves all units pending on the node, and is a fault."""
    allocation = allocated(8, {IDX: index}, core=30)
    assert allocation.placement.mem == {}
    assert (allocation.pending, allocation.pending_core) == (8, 30)
    assert allocation.faults == (f"annotation {IDX} is not the index of a GPU",)


def test_a_pod_that_bypassed_the_extender_is_pending() -> None:
    """Without annotations everything is pending, without a fault."""
    allocation = allocated(8, gpus=0)
    assert (allocation.pending, allocation.faults, allocation.state) == (
        8,
        (),
        AllocationState.BOUND,
    )


def test_a_map_with_less_than_the_limits_is_counted_in_full() -> None:
    """The larger of the map and an even share of the specification, and a fault."""
    allocation = allocated(8, {V2: '{"0":{"0":1,"1":7}}'})
    assert allocation.placement.mem == {0: 1, 1: 7}
    short = allocated(8, {V2: '{"0":{"0":1,"1":1}}'})
    assert short.placement.mem == {0: 4, 1: 4}
    assert short.faults == ("the allocation map disagrees with the pod's limits",)
    assert short.pending == 0


def test_a_map_with_more_than_the_limits_is_counted_as_it_is() -> None:
    """More is possible (an older specification cannot be known), less is not."""
    allocation = allocated(8, {V2: '{"0":{"0":20}}'})
    assert allocation.placement.mem == {0: 20}
    assert allocation.faults == ("the allocation map disagrees with the pod's limits",)


def test_containers_swapped_in_the_map_are_a_fault() -> None:
    """Equal sums with other containers still disagree."""
    allocation = allocated((3, 5), {V2: '{"0":{"0":5},"1":{"0":3}}'})
    assert allocation.placement.mem == {0: 8}
    assert allocation.faults == ("the allocation map disagrees with the pod's limits",)


def test_what_init_containers_need_more_sits_on_the_same_gpus() -> None:
    """The surplus of an init container is on the GPUs of the map."""
    base = pod("p", 4, node="n", annotations={V2: '{"0":{"1":2,"3":2}}'})
    inits = (Container(limits=limits(10)),)
    allocation = allocation_of(msgspec.structs.replace(base, init_containers=inits), NAMES)
    assert allocation is not None
    assert allocation.placement.mem == {1: 5, 3: 5}
    assert allocation.faults == ()


def test_an_index_names_only_the_first_of_several_gpus() -> None:
    """With gpu-count 2 and V1 only, half is on the GPU and half is pending."""
    allocation = allocated(9, {IDX: "1"}, labels={NAMES.gpu_count: "2"})
    assert allocation.placement.mem == {1: 5}
    assert allocation.placement.containers == {}
    assert allocation.pending == 4


def test_compute_follows_memory() -> None:
    """Without a map of its own, compute is spread evenly over the GPUs of the memory."""
    allocation = allocated(8, {V2: '{"0":{"0":4,"2":4}}'}, core=51)
    assert allocation.placement.core == {0: 26, 2: 26}


def test_compute_has_a_map_of_its_own() -> None:
    """The third generation's map of percentages is read (C7)."""
    texts = {V2: '{"0":{"1":1},"1":{"1":7}}', wire_names.V3_CORE_PERCENTAGE: '{"0":{"1":50}}'}
    allocation = allocated((1, 7), texts, core=50)
    assert allocation.placement.core == {1: 50}
    assert allocation.placement.mem == {1: 8}


def test_compute_alone_is_found_by_the_index() -> None:
    """A pod that requests only compute is on the GPU of IDX."""
    allocation = allocated(0, {IDX: "2"}, core=40)
    assert allocation.placement.core == {2: 40}
    assert allocation.pending_core == 0


def test_compute_over_several_gpus_with_one_known() -> None:
    """What is on unknown GPUs is pending."""
    allocation = allocated(0, {IDX: "2"}, core=40, labels={NAMES.gpu_count: "2"})
    assert allocation.placement.core == {2: 20}
    assert allocation.pending_core == 20


def test_a_group_of_exclusive_gpus() -> None:
    """GROUP lists exclusive GPUs in the order containers see them."""
    allocation = allocated(0, {NAMES.group: "3,1"}, gpus=2)
    assert allocation.placement.group == (3, 1)
    assert (allocation.pending_gpus, allocation.faults) == (0, ())


@pytest.mark.parametrize(
    ("text", "group", "pending"),
    [("3", (3,), 1), ("3,3", (3,), 1), ("", (), 2), ("x,1", (1,), 1), ("0,1,2", (0, 1, 2), 0)],
)
def test_a_group_of_another_size_is_a_fault(
    text: str, group: tuple[int, ...], pending: int
) -> None:
    """GPUs that are named count, those that are missing are pending."""
    allocation = allocated(0, {NAMES.group: text}, gpus=2)
    assert allocation.placement.group == group
    assert allocation.pending_gpus == pending
    words = f"annotation {NAMES.group} names {len(group)} GPUs, but the pod requests 2"
    assert allocation.faults == (words,)


@pytest.mark.parametrize(
    ("annotations", "group", "fault"),
    [
        ({wire_names.GPU_GROUP: "3,1"}, (3, 1), ""),
        ({wire_names.GPU_GROUP: "3,1", NAMES.group: "0,2"}, (0, 2), ""),
        ({wire_names.GPU_GROUP: "3"}, (3,), f"annotation {wire_names.GPU_GROUP} names 1 GPUs"),
        ({wire_names.GPU_VISIBLE: "3,1"}, (), ""),
    ],
)
def test_a_group_in_the_vendors_later_annotation(
    annotations: dict[str, str], group: tuple[int, ...], fault: str
) -> None:
    """The annotation that arena reads counts where ALIYUN_COM_GPU_GROUP is absent."""
    allocation = allocated(0, annotations, gpus=2)
    assert allocation.placement.group == group
    assert allocation.pending_gpus == 2 - len(group)
    assert all(each.startswith(fault) for each in allocation.faults)
    assert len(allocation.faults) == bool(fault)


def test_a_group_without_annotation_is_pending() -> None:
    """Exclusive GPUs of a pod that bypassed the extender are pending."""
    allocation = allocated(0, gpus=2)
    assert (allocation.placement.group, allocation.pending_gpus, allocation.faults) == ((), 2, ())


@pytest.mark.parametrize(
    "key",
    [NAMES.mem_assigned, wire_names.V2_ASSIGNED, wire_names.V3_ASSIGNED, NAMES.group_assigned],
)
def test_any_generation_confirms(key: str) -> None:
    """ASSIGNED of any generation confirms, and only the word true does."""
    assert allocated(8, {IDX: "0", key: "true"}).state is AllocationState.CONFIRMED
    assert allocated(8, {IDX: "0", key: "false"}).state is AllocationState.BOUND
    assert allocated(8, {IDX: "0", key: "True "}).state is AllocationState.BOUND


@pytest.mark.parametrize(
    "key",
    [
        NAMES.mem_assume_time,
        wire_names.V2_ASSUME_TIME,
        wire_names.V3_ASSUME_TIME,
        NAMES.group_assume_time,
    ],
)
def test_every_generation_of_the_protocol_has_the_time(key: str) -> None:
    """The time of the decision is the first that can be read."""
    assert allocated(8, {key: "1700000000000000000"}).assume_time == 1_700_000_000_000_000_000
    assert allocated(8, {key: "yesterday"}).assume_time == 0


def test_the_unit_of_the_amounts() -> None:
    """gpushare/unit makes the amounts explicit; text that is none is a fault."""
    assert allocated(8, {IDX: "0", wire_names.UNIT: "MiB"}).unit == MIB
    broken = allocated(8, {IDX: "0", wire_names.UNIT: "GB"})
    assert broken.unit is None
    assert broken.faults == (f"annotation {wire_names.UNIT} is not a unit of memory",)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_hold_nothing(phase: str) -> None:
    """A final phase ends the allocation."""
    assert allocation_of(pod("p", 8, node="n", phase=phase), NAMES) is None


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_terminating_pods_hold_what_they_held(phase: str) -> None:
    """Deletion was requested, but containers still run."""
    dying = pod("p", 8, node="n", phase=phase, annotations={IDX: "0"}, terminating=True)
    allocation = allocation_of(dying, NAMES)
    assert allocation is not None
    assert allocation.placement.mem == {0: 8}


@pytest.mark.parametrize(("terminating", "gang"), [(False, "g"), (True, "")])
def test_a_terminating_pod_is_no_member_of_its_gang(gang: str, *, terminating: bool) -> None:
    """Its replacement takes its place."""
    labels = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    assert allocated(8, {IDX: "0"}, labels=labels, terminating=terminating).gang == gang


def test_a_container_without_a_limit_of_kai_counts_with_its_share() -> None:
    """KAI's limits are in MiB, the share is in the unit of the node."""
    kai = f"{wire_names.KAI_CONTAINER}c0{wire_names.KAI_MEMORY_LIMIT}"
    texts = {IDX: "0", wire_names.UNIT: "GiB", kai: "8192"}
    assert allocated((4, 2), texts).burst == 10


def test_unbound_pods_and_others_hold_nothing() -> None:
    """No node, or no GPUs: no allocation."""
    assert allocation_of(pod("p", 8), NAMES) is None
    assert allocation_of(pod("p", node="n"), NAMES) is None


def test_a_whole_device_is_exclusive() -> None:
    """The label of whole devices makes the allocation exclusive."""
    labels = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    assert allocated(8, {IDX: "0"}, labels=labels).exclusive
    assert not allocated(8, {IDX: "0"}).exclusive
