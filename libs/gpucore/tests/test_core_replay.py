"""Replays of small traces whose outcome is known."""

import random
from collections.abc import Sequence

import pytest

from gpucore.model import Placement
from gpucore.simulate.hosts import Host, mix_of
from gpucore.simulate.replay import REPLAY_POLICIES, Replayed, replay
from gpucore.simulate.traces import TraceError, TraceNode, TracePod
from gpucore.units import NodeName
from gpucore.workload.pod_mix import PodKind

BIG = 10**9


def node(
    name: str, gpus: int, *, cpu: int = BIG, memory: int = BIG, model: str = "T4"
) -> TraceNode:
    """A node of a trace."""
    return TraceNode(name, cpu, memory, gpus, model)


def work(gpus: int = 1, milli: int = 1000, *, cpu: int = 1, models: Sequence[str] = ()) -> TracePod:
    """A pod of a trace."""
    return TracePod("p", cpu, 1, gpus, milli, frozenset(models))


def played(
    nodes: list[TraceNode], pods: list[TracePod], policy: str = "binpack", target: float = 9.0
) -> Replayed:
    """The pods in order, once."""
    chance = random.Random(0)
    return replay(nodes, pods, policy, workload=pods, pick=chance.randrange, target=target)


@pytest.mark.parametrize("policy", REPLAY_POLICIES)
def test_figures_add_up(policy: str) -> None:
    """Placed and failed are what was requested; placed and left over are all GPUs."""
    pods = [work(1, 300), work(2), work(0, 0), work(1, 900), work(1), work(8)] * 2
    result = played([node("a", 4), node("b", 2)], pods, policy)
    assert result.gpus == 6
    assert result.requested == pytest.approx(2 * (0.3 + 2 + 0.9 + 1 + 8))
    assert result.placed + result.failed == pytest.approx(result.requested)
    assert result.placed + result.unallocated_gpus == pytest.approx(6)
    assert result.requested_pods == 12
    assert result.failed_pods >= 2


def test_arrivals_stop_at_the_target() -> None:
    """Arrivals end once they ask for the given multiple of all GPUs."""
    reported: list[float] = []
    result = replay(
        [node("a", 2)],
        iter(lambda: work(1, 500), None),
        "binpack",
        workload=[],
        pick=random.Random(0).randrange,
        target=1.5,
        progress=reported.append,
    )
    assert (result.requested, result.placed, result.failed_pods) == (3.0, 2.0, 2)
    assert reported == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


def test_binpack_packs_nodes_and_spread_spreads() -> None:
    """Halves leave a node whole under binpack, and none under spread."""
    nodes, pods = [node("a", 1), node("b", 1)], [work(1, 500), work(1, 500), work(1)]
    assert played(nodes, pods, "binpack").failed == 0
    assert played(nodes, pods, "spread").failed == 1


@pytest.mark.parametrize(
    ("small", "pod"),
    [
        (node("a", 1, cpu=5), work(cpu=6)),
        (node("a", 1, memory=0), work()),
        (node("a", 1, model="P100"), work(models=["T4", "A10"])),
        (node("a", 1), work(2)),
        (node("a", 2), work(2, 1000, models=["A10"])),
    ],
)
def test_what_a_host_lacks(small: TraceNode, pod: TracePod) -> None:
    """Too little CPU, memory or GPUs, or another model: the pod fails."""
    assert played([small], [pod]).failed_pods == 1


def test_cpu_and_memory_are_used_up() -> None:
    """Pods without GPUs take CPU that later pods miss, and are counted when they fail."""
    result = played([node("a", 2, cpu=10)], [work(0, 0, cpu=8), work(cpu=3), work(0, 0, cpu=3)])
    assert (result.failed_pods, result.failed) == (2, 1.0)


def test_models_are_honoured() -> None:
    """A pod that names models goes to a node of one of them."""
    nodes = [node("a", 1, model="P100"), node("b", 1, model="T4")]
    assert played(nodes, [work(models=["T4"]), work(models=["P100", "A10"])]).failed == 0


def test_parts_of_several_gpus() -> None:
    """Two GPUs at 600 each leave 400 on both."""
    result = played([node("a", 2)], [work(2, 600), work(1, 500), work(2, 400)])
    assert result.failed == pytest.approx(0.5)


def test_fragmentation_leaves_cpu_where_gpus_are() -> None:
    """Work that eats CPU goes where no usable GPU is stranded by it."""
    nodes = [node("gpus", 4, cpu=10), node("spare", 1, cpu=10)]
    pods = [work(0, 0, cpu=9), *[work(cpu=2)] * 5]
    assert played(nodes, pods, "binpack").failed == 4
    assert played(nodes, pods, "fragmentation").failed == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: node("a", -1),
        lambda: node("a", 1, cpu=-1),
        lambda: work(1, 0),
        lambda: work(1, 1001),
        lambda: work(-1, 5),
    ],
)
def test_rows_that_cannot_be_are_refused(make: object) -> None:
    """Negative figures and shares over a GPU are no trace."""
    assert callable(make)
    with pytest.raises(TraceError):
        make()


def test_the_mix_of_a_trace_is_its_pods_with_gpus() -> None:
    """Equal pods are one kind, pods without GPUs are none."""
    mix = mix_of([work(1, 500), work(1, 500), work(2, models=["B", "A"]), work(0, 0)])
    assert mix.kinds == {
        PodKind(gpus=1, mem=500, cpu_milli=1, memory_mib=1): 2.0,
        PodKind(gpus=2, cpu_milli=1, memory_mib=1, models=("A", "B")): 1.0,
    }


def test_a_host_compares_by_what_it_has_left() -> None:
    """The pods that it takes use up the CPU and memory that the policy sees."""
    host = Host(node("a", 2, cpu=10, memory=9, model="T4"), mix_of([work()]))
    host.take(work(0, 0, cpu=4), Placement(NodeName("a")))
    room = host.node_info.host
    assert room is not None
    assert (room.model, room.units, room.cpu_milli, room.memory_mib) == ("T4", 1000, 6, 8)


def test_a_host_keeps_count() -> None:
    """Every pod taken makes a new version of the host."""
    host = Host(node("a", 1, cpu=5), mix_of([]))
    assert host.runs(work(cpu=5))
    assert not host.runs(work(cpu=6))
    assert host.version == 0
