"""The words of refusals are the core's, whichever way they were kept."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from objects import node, placed, pod

from gpucore.explain import sentence
from gpucore.fit import fit, sift
from gpucore.ledger import Ledger
from gpucore.model import Ask, Demand
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpuextender.memo import Memo
from gpuextender.refusals import Refusals

HOLDERS = st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 16)), max_size=6)


def books(units: list[int], holders: list[tuple[int, int]], unhealthy: int) -> Ledger:
    """A ledger of one node; a holder on card -1 is on no known card."""
    ledger = Ledger(DEFAULT_NAMES)
    ledger.node_changed(decode_node(json.dumps(node("n", *units, unit="GiB")).encode()))
    ledger.unhealthy_changed("n", frozenset({unhealthy}))
    for number, (card, amount) in enumerate(holders):
        item = placed(pod(f"p{number}", amount), "n", card % len(units))
        if card < 0:
            item["metadata"]["annotations"] = {}
        ledger.pod_changed(decode_pod(json.dumps(item).encode()))
    return ledger


@given(
    units=st.lists(st.integers(1, 16), min_size=1, max_size=3),
    holders=HOLDERS,
    unhealthy=st.integers(0, 5),
    amounts=st.lists(st.integers(1, 20), min_size=1, max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_kept_words_are_the_words_of_the_core(
    units: list[int], holders: list[tuple[int, int]], unhealthy: int, amounts: list[int]
) -> None:
    """Any order of amounts gives each the sentence, code and finality that the core gives."""
    ledger = books(units, holders, unhealthy)
    refusals = Refusals(ledger)
    for amount in amounts:
        demand = Demand((Ask(amount),), mem=amount)
        expected = fit(ledger.node("n"), demand)
        found = refusals.of(demand, sift(ledger, demand, ["n"])[1])
        if expected is None:
            assert found.failed == {}
            continue
        assert found.failed == {"n": sentence(expected)}
        assert ("n" in found.hopeless) == expected.unresolvable
        assert +found.counts == {expected.code: 1}


def test_a_change_of_the_books_changes_the_words() -> None:
    """What was kept of a node is dropped when it is touched."""
    ledger = books([10], [(0, 4)], 9)
    refusals = Refusals(ledger)
    demand = Demand((Ask(8),), mem=8)
    before = refusals.of(demand, sift(ledger, demand, ["n"])[1]).failed["n"]
    item = placed(pod("more", 3), "n", 0)
    ledger.pod_changed(decode_pod(json.dumps(item).encode()))
    refusals.touch("n")
    after = refusals.of(demand, sift(ledger, demand, ["n"])[1]).failed["n"]
    assert "card 0 has 6 of 10 free" in before
    assert "card 0 has 3 of 10 free" in after


def test_memory_of_answers_is_bounded() -> None:
    """The question least recently asked is forgotten first."""
    memo: Memo[int, str] = Memo(limit=2)
    memo.of(1)["n"] = "one"
    memo.of(2)["n"] = "two"
    memo.of(1)
    memo.of(3)
    assert memo.of(1) == {"n": "one"}
    assert memo.of(2) == {}
