"""Pods of the original plugin keep the GPU they were given, whatever kubelet's ids look like."""

from nodepods import Kubelet, expected, machine, make_pod, matcher, plan

from gpucore.node.allocation.allocation_error import AllocationError
from gpucore.node.allocation.device_ids import Resource, device_table
from gpucore.node.allocation.holdings import Held
from gpucore.node.allocation.matcher import Granted
from gpucore.node.reconcile.corrections import CorrectionInput, corrections
from gpucore.node.reconcile.inherited import Inherited, inherited
from gpucore.wire.names import DEFAULT_NAMES, V2_ASSIGNED
from gpucore.wire.pod.spec import Pod

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
    state = matcher(INVENTORY, expected("a", {"gpu-mem": 12}), expected("b", {"gpu-mem": 8}))
    state.displaced = look(held, pod).displaced
    kubelet = Kubelet(state)
    state.sync_from_kubelet([held], requested_at=0)
    kubelet.used[Resource.MEM] |= set(held.containers["c0"][Resource.MEM])
    assert isinstance(kubelet.take(12), AllocationError)
    granted = kubelet.take(8)
    assert isinstance(granted, Granted)
    assert dict(granted.gpus) == {0: 8}


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
