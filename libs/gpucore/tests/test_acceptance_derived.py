"""The cases of section 11.4: what adopters of the original contract test."""

import msgspec
from corebuilders import NAMES, ledger, limits, make_gpus, on_node, pod, pod_request, share_node

from gpucore.model import Placement
from gpucore.scheduling.device_fit import device_fit_error
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.pod.spec import Container


def test_containers_of_a_pod_are_summed() -> None:
    """Containers of 1 and 3 units make a pod of 4."""
    assert pod_request(pod("p", (1, 3))).mem == 4


def test_init_containers_count_by_the_largest() -> None:
    """Init containers of 1 and 3 with containers of 2 in all make max(3, 2) = 3."""
    inits = tuple(Container(limits=limits(units)) for units in (1, 3))
    requested = msgspec.structs.replace(pod("p", (1, 1)), init_containers=inits)
    assert pod_request(requested).mem == 3


def test_a_request_over_both_sides_never_makes_idle_negative() -> None:
    """Held over a GPU's size in memory and compute, free stays 0 and the GPU is reported."""
    names = {NAMES.mem_idx: "0"}
    things = [pod(f"p{i}", 8, core=80, node="n", annotations=names) for i in range(3)]
    book = ledger(share_node("n", make_gpus(15)), *things)
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    device = node_info.devices[GpuIndex(0)]
    assert (device.used, device.core_used) == (24, 240)
    assert (device.free, device.core_free) == (0, 0)
    assert node_info.overfull == (0,)
    assert node_info.max_allocatable_memory == 0


def test_release_gives_back_what_the_annotations_recorded() -> None:
    """Once the pod is gone nothing of its annotations is left in the books."""
    held = pod("p", 8, node="n", annotations={NAMES.mem_idx: "0"})
    book = ledger(share_node("n", make_gpus(15)), held)
    book.pod_gone(held.uid)
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    assert not node_info.allocations
    assert node_info.devices[GpuIndex(0)].free == 15


def test_candidates_of_a_single_gpu_share() -> None:
    """With {0: 10, 1: 4, 2: 5, 5: 9, 7: 0} free, a request of 6 fits GPUs 0 and 5 only."""
    free = {0: 10, 1: 4, 2: 5, 5: 9, 7: 0}
    things = [
        pod(f"p{i}", 10 - left, node="n", annotations={NAMES.mem_idx: str(i)})
        for i in range(8)
        if (left := free.get(i, 0)) < 10
    ]
    book = ledger(share_node("n", make_gpus(*[10] * 8)), *things)
    node_info = book.node(NodeName("n"))
    assert node_info is not None
    requested = pod("p", 6)
    candidates = [
        index
        for index, gpu in node_info.devices.items()
        if device_fit_error(gpu, pod_request(requested)) is None
    ]
    assert candidates == [0, 5]
    placement = on_node(book, "n", requested)
    assert isinstance(placement, Placement)
    assert placement.mem == {5: 6}
