"""How long questions about the future take, on 1,000 nodes of 8 GPUs with 10,000 pods.

Bars: 100 equal pods under 1 s, a plan of moves likewise.
"""

from collections.abc import Mapping
from itertools import islice

from pytest_benchmark.fixture import BenchmarkFixture

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import ContainerRequest, PodRequest
from gpucore.simulate.defrag import Goal, defragment
from gpucore.simulate.whatif import SimulatedCluster, WhatIfOutcome, WhatIfPod
from gpucore.units import NodeName

NODES, PODS = 1_000, 100
LIMITS = {"equal": 1.0, "defrag": 1.0}


def part(fleet: Ledger) -> Mapping[NodeName, NodeInfo]:
    """The first of the fleet's nodes."""
    return dict(islice(fleet.nodes().items(), NODES))


def placed(node_infos: Mapping[NodeName, NodeInfo], pods: list[WhatIfPod]) -> list[WhatIfOutcome]:
    """Pods that come one after the other."""
    cluster = SimulatedCluster(node_infos)
    return [cluster.grant(each) for each in pods]


def share(mem: int) -> PodRequest:
    """A share of one GPU."""
    return PodRequest(containers=(ContainerRequest(mem),), mem=mem)


def test_equal_pods(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """The replicas of one Deployment."""
    whatif_pods = [WhatIfPod(f"w{number}", share(8)) for number in range(PODS)]
    outcomes = benchmark.pedantic(placed, (part(fleet), whatif_pods), rounds=5, warmup_rounds=1)
    assert all(outcome.placement for outcome in outcomes)
    assert benchmark.stats.stats.median < LIMITS["equal"]


def test_pods_that_all_differ(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """No two ask the same, so nothing that is kept helps."""
    whatif_pods = [
        WhatIfPod(
            f"w{number}",
            PodRequest(containers=(ContainerRequest(8, 1 + number),), mem=8, core=1 + number),
        )
        for number in range(PODS)
    ]
    outcomes = benchmark.pedantic(placed, (part(fleet), whatif_pods), rounds=1)
    assert all(outcome.placement for outcome in outcomes)


def test_defragment(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """A node of eight GPUs is cleared: the fewest pods to move, and a place for each."""
    node_infos = part(fleet)
    pod_requests = {
        uid: share(8) for node_info in node_infos.values() for uid in node_info.allocations
    }
    plan = benchmark.pedantic(defragment, (node_infos, pod_requests, Goal(gpus=8)), rounds=5)
    assert plan is not None
    assert plan.moves
    assert benchmark.stats.stats.median < LIMITS["defrag"]
