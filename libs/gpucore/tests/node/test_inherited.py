"""Pods of the original plugin keep the GPU they were given, whatever kubelet's ids look like."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from nodepods import Kubelet, expected, machine, make_pod, matcher, plan

from gpucore.accounting.ledger import rebuilt
from gpucore.model import FitError
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource, device_table
from gpucore.node.allocation.expected import Expected
from gpucore.node.allocation.holdings import Held
from gpucore.node.allocation.matcher import Granted
from gpucore.node.reconcile.corrections import CorrectionInput, corrections
from gpucore.node.reconcile.inherited import Inherited, inherited
from gpucore.scheduling.policy import place
from gpucore.units import GIB, GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.names import DEFAULT_NAMES, V2_ASSIGNED
from gpucore.wire.names import INVENTORY as INVENTORY_ANNOTATION
from gpucore.wire.node.inventories import encode_inventory
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

INVENTORY = machine(15, 15)
TABLES = {each: device_table(INVENTORY, each) for each in Resource}
TABLE = TABLES[Resource.MEM]
ASSIGNED = {DEFAULT_NAMES.mem_assigned: "true"}


def original(name: str, gpu: int, units: int, **more: str) -> Pod:
    """A running pod as the original extender and plugin leave it."""
    merged = plan(gpu, units) | ASSIGNED | more
    return make_pod(name, {"gpu-mem": units}, annotations=merged, phase="Running")


def reported_by_kubelet(name: str, on: dict[int, int]) -> Held:
    """Kubelet's account: ids that it picked at random."""
    ids = tuple(one for gpu, n in on.items() for one in TABLE.ids[gpu][:n])  # type: ignore[index]
    return Held("default", name, {"c0": {Resource.MEM: ids}})


def look(held: Held, pod: Pod, granted: frozenset[str] = frozenset()) -> Inherited:
    return inherited([held], [pod], DEFAULT_NAMES, table=TABLE, granted=granted)


def taken_over(pod: Pod, held: Held, *waiting: Expected) -> Kubelet:
    """Kubelet and this plugin after the original's pod ``held`` these devices."""
    state = matcher(INVENTORY, *waiting)
    state.sync_from_kubelet([held], requested_at=0)
    found = look(held, pod)
    state.inherit(found.gpus, found.displaced)
    kubelet = Kubelet(state)
    kubelet.used[Resource.MEM] |= set(held.memory_ids)
    return kubelet


def exclusive(gpu: int) -> Expected:
    """A pod that requests one GPU, planned on this one."""
    return expected("new", {"gpu": 1}, annotations={DEFAULT_NAMES.group: str(gpu)})


def test_the_annotation_of_an_inherited_pod_is_not_corrected_to_meaningless_ids() -> None:
    """On GPU 1 by the original's word, over both by kubelet's: the word stands."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 6, 1: 4})
    found = look(held, pod)
    truth = CorrectionInput(INVENTORY, TABLES, DEFAULT_NAMES, 0, found.pods)
    assert corrections([held], [pod], truth) == []
    assert found.displaced == {1: 6}


def test_a_gpu_is_not_given_out_twice_because_its_ids_are_counted_elsewhere() -> None:
    """Kubelet has 11 ids of GPU 1 left, but 5 units: a pod of 8 goes to GPU 0, one of 12 away."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 6, 1: 4})
    kubelet = taken_over(pod, held, expected("a", {"gpu-mem": 12}), expected("b", {"gpu-mem": 8}))
    assert isinstance(kubelet.take(12), AllocationError)
    granted = kubelet.take(8)
    assert isinstance(granted, Granted)
    assert dict(granted.gpus) == {0: 8}


@pytest.mark.parametrize("planned", [0, 1])
def test_a_gpu_that_an_inherited_pod_uses_is_given_to_no_pod_exclusively(planned: int) -> None:
    """On GPU 1 by the original's word, on GPU 0 by kubelet's: GPU 0 is the empty one."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 10})
    granted = taken_over(pod, held, exclusive(planned)).take(1, Resource.GPU)
    assert isinstance(granted, Granted)
    assert dict(granted.gpus) == {0: 1}


def test_a_share_with_a_gpu_to_itself_is_not_put_beside_an_inherited_pod() -> None:
    """Neither where the pod is, nor is the GPU of its devices refused for its sake."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 10})
    whole = {wire_names.LABEL_REQUIRE_WHOLE: wire_names.REQUIRE_WHOLE_DEVICE}
    new = expected("new", {"gpu-mem": 5}, annotations=plan(0, 5), labels=whole)
    granted = taken_over(pod, held, new).take(5)
    assert isinstance(granted, Granted)
    assert dict(granted.gpus) == {0: 5}


def test_compute_is_not_put_where_an_inherited_pod_leaves_too_little_memory() -> None:
    """Kubelet may call for compute first; the memory of the container has to fit there too."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 4})
    new = expected("new", {"gpu-mem": 8, "gpu-core.percentage": 10})
    kubelet = taken_over(pod, held, new)
    core = kubelet.take(10, Resource.CORE)
    assert isinstance(core, Granted)
    memory = kubelet.take(8)
    assert isinstance(memory, Granted)
    assert set(core.gpus) == set(memory.gpus) == {0}


def test_a_gpu_that_the_node_has_lost_frees_no_other() -> None:
    """Nothing is known of where the pod is then: the GPU of its devices is in use."""
    pod, held = original("old", 7, 10), reported_by_kubelet("old", {0: 10})
    kubelet = taken_over(pod, held, exclusive(0))
    granted = kubelet.take(1, Resource.GPU)
    assert isinstance(granted, Granted)
    assert dict(granted.gpus) == {1: 1}
    assert kubelet.matcher.gpus_held("default", "old") == {0}


def test_the_last_devices_of_a_node_are_checked_too() -> None:
    """Kubelet asks for no preference where a pod takes all that are left, here those of GPU 1."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 10})
    state, ids = taken_over(pod, held).matcher, TABLE.ids[GpuIndex(1)]
    denied = state.allocate(Resource.MEM, ids[:6])
    assert isinstance(denied, AllocationError)
    assert denied.code is AllocationErrorCode.NO_GPU_FITS
    assert "GPU 1 has 5 units free" in denied.sentence
    assert isinstance(state.allocate(Resource.MEM, ids[:5]), Granted)


def test_compute_that_is_handed_out_makes_no_pod_one_of_ours() -> None:
    """Ids of compute are spelled as those of memory, and say nothing about who gave the memory."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 10})
    kubelet = taken_over(pod, held, expected("new", {"gpu-core.percentage": 50}))
    assert isinstance(kubelet.take(50, Resource.CORE), Granted)
    assert look(held, pod, frozenset(kubelet.matcher.granted)).pods == {("default", "old")}


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 8)), max_size=5),
    st.permutations(list(TABLE.owner)),
    st.integers(1, 15),
)
def test_a_node_grants_what_a_scheduler_places_by_its_inventory(
    drawn: list[tuple[int, int]], ids: list[str], units: int
) -> None:
    """A pod that its node refuses is created and placed anew, in the same place, without end."""
    room = Counter({0: 15, 1: 15})
    pods, held = list[Pod](), list[Held]()
    for number, (gpu, size) in enumerate(drawn):
        if room[gpu] >= size:
            room[gpu] -= size
            pods.append(original(f"old{number}", gpu, size))
            row = {Resource.MEM: tuple(ids.pop() for _ in range(size))}
            held.append(Held("default", pods[-1].name, {"c0": row}))
    found = inherited(held, pods, DEFAULT_NAMES, table=TABLE, granted=frozenset())
    gpus = tuple(replace(gpu, withheld=found.withheld[gpu.index]) for gpu in INVENTORY.gpus)
    published = encode_inventory(replace(INVENTORY, gpus=gpus, unit=GIB))
    capacity = {DEFAULT_NAMES.gpu_mem: "30"}
    node = Node(NodeName("n1"), annotations={INVENTORY_ANNOTATION: published}, capacity=capacity)
    info = rebuilt(DEFAULT_NAMES, [node], pods).node(NodeName("n1"))
    request = pod_request_of(make_pod("new", {"gpu-mem": units}), DEFAULT_NAMES)
    assert info is not None
    assert request is not None
    placed = place(info, request)
    if isinstance(placed, FitError):
        return
    (planned,) = placed.mem
    state = matcher(INVENTORY, expected("new", {"gpu-mem": units}, annotations=plan(planned)))
    state.sync_from_kubelet(held, requested_at=0)
    state.inherit(found.gpus, found.displaced)
    kubelet = Kubelet(state)
    kubelet.used[Resource.MEM] = {one for each in held for one in each.memory_ids}
    granted = kubelet.take(units)
    assert isinstance(granted, Granted)
    assert dict(granted.gpus) == {planned: units}


def test_an_inherited_pod_holds_the_gpu_of_its_annotation() -> None:
    """Whoever asks for the GPUs of a pod, or for the pods of a GPU, gets the one that it uses."""
    pod, held = original("old", 1, 10), reported_by_kubelet("old", {0: 10})
    state = taken_over(pod, held).matcher
    assert state.gpus_held("default", "old") == {1}
    assert state.holdings.by_pod(TABLE, GpuIndex(1)) == {("default", "old"): 10}
    assert not state.holdings.holders(TABLE, GpuIndex(0))
    state.release("default", "old")
    assert not state.holdings.holders(TABLE, GpuIndex(1))


def test_devices_that_an_init_container_leaves_to_its_pod_count_once() -> None:
    """Kubelet names them for both containers; the pod's units on GPU 1 stay displaced."""
    held = reported_by_kubelet("old", {0: 6, 1: 4})
    held.containers["init"] = held.containers["c0"]
    assert look(held, original("old", 1, 10)).displaced == {1: 6}


def test_our_own_pods_are_never_inherited() -> None:
    """What our plugin assigned is marked in the second generation too."""
    pod = original("ours", 1, 4, **{V2_ASSIGNED: "true"})
    assert look(reported_by_kubelet("ours", {0: 4}), pod) == Inherited()


def test_a_pod_that_only_claims_to_be_inherited_is_not_believed() -> None:
    """Whoever writes the original's annotations by hand still got its ids from us."""
    held = reported_by_kubelet("forged", {0: 4})
    granted = frozenset(held.containers["c0"][Resource.MEM])
    assert look(held, original("forged", 1, 4), granted) == Inherited()


def test_waiting_pods_are_not_inherited() -> None:
    """Planned by the original extender and not handed out yet: ours is the plugin that does it."""
    pod = make_pod("new", {"gpu-mem": 4}, annotations=plan(1, 4))
    assert look(reported_by_kubelet("new", {0: 4}), pod) == Inherited()


def test_what_cannot_be_read_is_not_inherited() -> None:
    """Corrupt text leaves kubelet's account as it is, and is corrected to it."""
    pod = original("odd", 1, 4, **{DEFAULT_NAMES.mem_idx: "x"})
    assert look(reported_by_kubelet("odd", {0: 4}), pod) == Inherited()
