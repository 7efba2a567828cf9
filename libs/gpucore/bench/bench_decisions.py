"""How long deciding takes, on 5,000 nodes of 8 GPUs with 50,000 pods (``make bench-core``).

Bars: a filter over all nodes under 1 ms, a pod event under 50 us.
"""

import itertools
import random

import msgspec
import pytest
from fleet import NODES, pod_object
from pytest_benchmark.fixture import BenchmarkFixture

from gpucore.accounting.ledger import Ledger
from gpucore.explain.sentences import headline
from gpucore.model import ContainerRequest, PodRequest
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.fit import fit
from gpucore.scheduling.policy import place, score
from gpucore.units import NodeName
from gpucore.wire.pod.spec import decode_pod
from gpucore.workload.pod_mix import HostRoom, PodKind, usual_mix

NAMES = [NodeName(f"node-{number:05}") for number in range(NODES)]
LIMITS = {"filter": 1e-3, "event": 50e-6}


def share(mem: int, core: int = 0) -> PodRequest:
    """A share of one GPU."""
    return PodRequest(containers=(ContainerRequest(mem, core),), mem=mem, core=core)


@pytest.mark.parametrize("mem", [8, 70, 200], ids=["fits everywhere", "fits on some", "nowhere"])
def test_filter_5000_nodes(benchmark: BenchmarkFixture, fleet: Ledger, mem: int) -> None:
    """A plain share over all names is one look-up a node."""
    benchmark.pedantic(filter_nodes, (fleet, share(mem), NAMES), rounds=200, warmup_rounds=5)
    assert benchmark.stats.stats.median < LIMITS["filter"]


def test_filter_with_refusals_counted(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """The same with the headline of all 5,000 refusals."""

    def refusals() -> int:
        _, refused = filter_nodes(fleet, share(200), NAMES)
        return len({headline(refusal) for refusal in refused.values()})

    assert benchmark.pedantic(refusals, rounds=5, warmup_rounds=1) == 1


def test_filter_memory_and_compute(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """A request that the aggregate does not answer looks at the GPUs of every node."""
    benchmark.pedantic(filter_nodes, (fleet, share(8, 30), NAMES), rounds=10, warmup_rounds=1)


def test_pod_event(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """A pod that is bound and a pod that is gone, among 50,000."""
    chance = random.Random(1)
    raw = msgspec.json.encode(pod_object(999_999, chance))
    pod = decode_pod(raw)

    def events() -> None:
        fleet.pod_changed(pod)
        fleet.pod_gone(pod.uid)

    benchmark.pedantic(events, rounds=2_000, warmup_rounds=50)
    assert benchmark.stats.stats.median < LIMITS["event"]


def test_pod_event_from_bytes(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """The same from the bytes of the watch."""
    raw = msgspec.json.encode(pod_object(999_999, random.Random(1)))

    def event() -> None:
        pod = decode_pod(raw)
        fleet.pod_changed(pod)
        fleet.pod_gone(pod.uid)

    benchmark.pedantic(event, rounds=2_000, warmup_rounds=50)


@pytest.mark.parametrize("policy", ["binpack", "spread", "fragmentation"])
def test_place_and_score(benchmark: BenchmarkFixture, fleet: Ledger, policy: str) -> None:
    """Choosing a GPU of one node, and rating it."""
    node_info, pod_request = fleet.nodes()[NAMES[0]], share(8)

    def decide() -> None:
        fit(node_info, pod_request)
        place(node_info, pod_request, policy)
        score(node_info, pod_request, policy)

    benchmark.pedantic(decide, rounds=500, warmup_rounds=20)


def test_place_and_score_by_a_learned_mix(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """The same with 99 kinds of pods, on a node whose CPU changes between decisions."""
    kinds = [
        PodKind(mem=1 + n % 80, cpu_milli=500 * (n % 30), memory_mib=1024 * n) for n in range(99)
    ]
    mix = usual_mix({kind: float(number) for number, kind in enumerate(kinds, 1)})
    node_info = fleet.nodes()[NAMES[0]].copy()
    pod_request = msgspec.structs.replace(share(8), cpu_milli=2000, memory_mib=4096)
    cpus = itertools.cycle(range(1000, 90_000, 1000))

    def decide() -> None:
        node_info.host = HostRoom(mix, "", 80, next(cpus), 1 << 18)
        fit(node_info, pod_request)
        place(node_info, pod_request, "fragmentation")
        score(node_info, pod_request, "fragmentation")

    benchmark.pedantic(decide, rounds=500, warmup_rounds=20)
