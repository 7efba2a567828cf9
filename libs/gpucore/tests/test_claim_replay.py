"""Claims in a replay: kube-scheduler's node, and first fit in the order of the slice on it."""

from gpucore.simulate.replay import Replayed, replay
from gpucore.simulate.traces import TraceNode, TracePod


def share(milli: int, cpu: int = 1000) -> TracePod:
    """A pod with a share of one GPU."""
    return TracePod("p", cpu, 1, 1, milli)


def replayed(policy: str, nodes: list[TraceNode], *pods: TracePod) -> Replayed:
    """All pods, in order."""
    return replay(nodes, pods, policy, workload=pods, pick=lambda _: 0, target=100)


ONE = [TraceNode("a", 64_000, 1000, 2)]
TWO = [TraceNode("a", 64_000, 1000, 1), TraceNode("b", 64_000, 1000, 1)]


def test_the_order_of_the_slice_decides_the_gpu() -> None:
    """With 300 and 800 in use, 200 go to the fuller GPU by binpack, to the first by index."""
    pods = (share(300), share(800), share(200), share(700))
    assert replayed("claims-binpack", ONE, *pods).failed_pods == 0
    assert replayed("claims-plain", ONE, *pods).failed_pods == 1


def test_the_node_is_chosen_by_cpu_and_memory_alone() -> None:
    """LeastAllocated spreads two halves over both nodes, so an exclusive GPU finds no room."""
    pods = (share(500), share(500), share(1000))
    assert replayed("claims-binpack", TWO, *pods).failed_pods == 1
    assert replayed("claims-binpack-packed", TWO, *pods).failed_pods == 0


def test_exclusive_gpus_are_the_first_that_are_free() -> None:
    """A share keeps its GPU from them."""
    pods = (share(500), TracePod("w", 1000, 1, 1, 1000), TracePod("x", 1000, 1, 1, 1000))
    found = replayed("claims-plain", ONE, *pods)
    assert (found.failed_pods, found.placed) == (1, 1.5)


def test_a_nominated_node_is_chosen_by_its_gpus() -> None:
    """Two halves share a GPU, so that an exclusive GPU stays free on the other node."""
    pods = (share(500), share(500), share(1000))
    for policy in ("claims-binpack-nominated", "claims-fragmentation-nominated"):
        assert replayed(policy, TWO, *pods).failed_pods == 0


def test_the_gpu_of_a_nominated_node_is_still_the_first_that_fits() -> None:
    """The order of the slice fits the usual share: a larger one may get another GPU."""
    pods = (share(300), share(800), share(200), share(700))
    assert replayed("claims-binpack-nominated", ONE, *pods).failed_pods == 0
