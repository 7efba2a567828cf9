"""How long questions about the future take, on 1,000 nodes of 8 cards with 10,000 pods.

Bars: 100 equal pods under 1 s, a plan of moves likewise.
"""

from collections.abc import Mapping
from itertools import islice

from pytest_benchmark.fixture import BenchmarkFixture

from gpucore.account import NodeAccount
from gpucore.defrag import Goal, defragment
from gpucore.ledger import Ledger
from gpucore.model import Ask, Demand
from gpucore.units import NodeName
from gpucore.whatif import Wish, what_if

NODES, PODS = 1_000, 100
LIMITS = {"equal": 1.0, "defrag": 1.0}


def part(fleet: Ledger) -> Mapping[NodeName, NodeAccount]:
    """The first of the fleet's nodes."""
    return dict(islice(fleet.nodes().items(), NODES))


def share(mem: int) -> Demand:
    """A share of one card."""
    return Demand(containers=(Ask(mem),), mem=mem)


def test_equal_pods(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """The replicas of one Deployment."""
    wishes = [Wish(f"w{number}", share(8)) for number in range(PODS)]
    answer = benchmark.pedantic(what_if, (part(fleet), wishes), rounds=5, warmup_rounds=1)
    assert all(outcome.placement for outcome in answer.outcomes)
    assert benchmark.stats.stats.median < LIMITS["equal"]


def test_pods_that_all_differ(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """No two ask the same, so nothing that is kept helps."""
    wishes = [
        Wish(f"w{number}", Demand(containers=(Ask(8, 1 + number),), mem=8, core=1 + number))
        for number in range(PODS)
    ]
    answer = benchmark.pedantic(what_if, (part(fleet), wishes), rounds=1)
    assert all(outcome.placement for outcome in answer.outcomes)


def test_defragment(benchmark: BenchmarkFixture, fleet: Ledger) -> None:
    """A node of eight cards is cleared: the fewest pods to move, and a place for each."""
    accounts = part(fleet)
    demands = {uid: share(8) for account in accounts.values() for uid in account.claims}
    plan = benchmark.pedantic(defragment, (accounts, demands, Goal(cards=8)), rounds=5)
    assert plan is not None
    assert plan.moves
    assert benchmark.stats.stats.median < LIMITS["defrag"]
