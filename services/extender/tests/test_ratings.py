"""The short cut of prioritize says what the core says, for every state and amount."""

import json
from math import floor

from hypothesis import given, settings
from hypothesis import strategies as st
from objects import node, placed, pod

from gpucore.ledger import Ledger
from gpucore.model import Ask, Demand
from gpucore.policy import POLICIES, place, score
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpuextender import ratings

HOLDERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 16), st.sampled_from((0, 0, 30))), max_size=8
)


def account_of(units: list[int], holders: list[tuple[int, int, int]], unhealthy: int) -> object:
    """Books of a node with these cards and these pods (card, units, percent)."""
    ledger = Ledger(DEFAULT_NAMES)
    ledger.node_changed(decode_node(json.dumps(node("n", *units, unit="GiB")).encode()))
    ledger.unhealthy_changed("n", frozenset({unhealthy}))
    for number, (card, amount, core) in enumerate(holders):
        item = placed(pod(f"p{number}", amount, core=core), "n", card % len(units))
        ledger.pod_changed(decode_pod(json.dumps(item).encode()))
    return ledger.node("n")


def exact(account: object, demand: Demand, policy: str) -> float | None:
    """The core's rating before it is rounded; ``None`` where it places nothing."""
    placement = place(account, demand, policy)
    if not hasattr(placement, "mem"):
        return None
    return 10 * POLICIES[policy].rate(account, demand, placement)[0]


@given(
    units=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    holders=HOLDERS,
    unhealthy=st.integers(0, 8),
    policy=st.sampled_from(("binpack", "spread")),
)
@settings(max_examples=150, deadline=None)
def test_tables_agree_with_the_core(
    units: list[int], holders: list[tuple[int, int, int]], unhealthy: int, policy: str
) -> None:
    """Every amount up to the largest card scores the same, but for the rounding of exact halves."""
    account = account_of(units, holders, unhealthy)
    table = ratings.table(account, policy)
    assert len(table) == max(units) + 1
    for amount in range(1, len(table)):
        demand = Demand((Ask(amount),), mem=amount)
        assert ratings.plain(demand)
        rating = exact(account, demand, policy)
        if rating is not None and abs(rating - floor(rating) - 0.5) < 1e-9:
            assert table[amount] in {floor(rating), floor(rating) + 1}
        else:
            assert table[amount] == score(account, demand, policy)


def test_only_plain_shares_take_the_short_cut() -> None:
    """Compute, whole cards and spread shares are asked of the core."""
    ask = (Ask(4),)
    assert ratings.plain(Demand(ask, mem=4))
    assert not ratings.plain(Demand(ask, mem=4, core=10))
    assert not ratings.plain(Demand(ask, mem=4, cards=2))
    assert not ratings.plain(Demand(ask, mem=4, whole_device=True))
    assert not ratings.plain(Demand((Ask(gpus=1),), gpus=1))


def test_fragmentation_and_small_units_are_asked_of_the_core() -> None:
    """No table where the formula does not hold or would be too long."""
    assert ratings.table(account_of([15], [], 9), "fragmentation") == ()
    assert ratings.table(account_of([15360], [], 9), "binpack") == ()
