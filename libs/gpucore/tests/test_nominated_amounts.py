"""What pods nominated to a node keep free there: memory, compute, and exclusive GPUs."""

import pytest
from corebuilders import ledger, make_gpus, pod, pod_request, share_node

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError
from gpucore.scheduling.nominated import refusal_beside
from gpucore.scheduling.pending_pods import NominatedPod
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod

ALONE = {"ack.gpushare.placement": "require-whole-device"}


def node(*held: Pod, gpus: tuple[int, ...] = (16, 16)) -> NodeInfo:
    """A node with shares and exclusive GPUs, on which pods hold something."""
    found = ledger(share_node("n", make_gpus(*gpus), whole=True)).node(NodeName("n"))
    assert found is not None
    node_info = found.copy()
    for each in held:
        request = pod_request(each)
        placement = place(node_info, request)
        assert not isinstance(placement, FitError)
        node_info.put(
            Allocation(
                each.uid,
                "",
                each.name,
                AllocationState.BOUND,
                placement,
                exclusive=request.whole_device,
            )
        )
    return node_info


def refused(node_info: NodeInfo, requesting: Pod, *nominated: Pod) -> bool:
    """The node is kept from a pod for the sake of those that are nominated to it."""
    pods = [NominatedPod(one.uid, one.name, pod_request(one), one.priority) for one in nominated]
    return refusal_beside(node_info, pod_request(requesting), pods) is not None


def test_memory_that_victims_are_about_to_free_is_reserved() -> None:
    """The nominated pod fits nowhere yet; what is free on other GPUs counts for it."""
    node_info = node(pod("a", 12), pod("b", 8, labels=ALONE))
    assert not refused(node_info, pod("p", 4))
    assert refused(node_info, pod("p", 4), pod("n", 12))


def test_each_nominated_pod_that_fits_nowhere_counts() -> None:
    """Two of them keep twice as much free."""
    node_info = node(pod("a", 9), pod("b", 9))
    assert not refused(node_info, pod("p", 6), pod("n", 8))
    assert refused(node_info, pod("p", 7), pod("n", 8))
    assert refused(node_info, pod("p", 1), pod("n", 8), pod("m", 8))


def test_compute_that_victims_are_about_to_free_is_reserved() -> None:
    """Of all GPUs of the node together, while it is not known which one gets the pod."""
    node_info = node(pod("a", 1, core=60), pod("b", 1, core=60), gpus=(16, 16))
    assert not refused(node_info, pod("p", 1, core=40))
    assert not refused(node_info, pod("p", 1, core=30), pod("n", 1, core=50))
    assert refused(node_info, pod("p", 1, core=31), pod("n", 1, core=50))


def test_exclusive_gpus_that_victims_are_about_to_free_are_reserved() -> None:
    """A pod nominated for two of them keeps both from shares and from exclusive requests."""
    node_info = node(pod("a", 1), gpus=(16, 16))
    assert not refused(node_info, pod("p", gpus=1))
    assert refused(node_info, pod("p", gpus=1), pod("n", gpus=2))
    assert refused(node_info, pod("p", 15), pod("n", gpus=2))


def test_a_pod_that_needs_its_gpu_to_itself_keeps_all_of_it_free() -> None:
    """However small its share is."""
    node_info = node(gpus=(16,))
    assert not refused(node_info, pod("p", 4), pod("n", 4))
    assert refused(node_info, pod("p", 4), pod("n", 4, labels=ALONE))


@pytest.mark.parametrize("first", ["high", "low"])
def test_of_nominated_pods_the_highest_priority_is_placed_first(first: str) -> None:
    """Whatever their order: the small one of high priority takes the small gap."""
    node_info = node(pod("a", 12), gpus=(16, 16))
    uids = {name: PodUid(name) for name in ("high", "low")}
    high = NominatedPod(uids["high"], "high", pod_request(pod("high", gpus=1)), 9)
    low = NominatedPod(uids["low"], "low", pod_request(pod("low", 14)), 1)
    both = [high, low] if first == "high" else [low, high]
    found = refusal_beside(node_info, pod_request(pod("p", 2)), both)
    assert found is not None
    assert found.total == 14
