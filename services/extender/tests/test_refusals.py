"""Verdicts and words are the core's, whichever way they were kept."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from objects import node, placed, pod

from gpucore.explain import sentence
from gpucore.fit import fit
from gpucore.ledger import Ledger
from gpucore.model import Ask, Code, Demand
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpuextender.refusals import FITS, Refusals, Verdict
from gpuextender.roster import Roster

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


class Asked:
    """Verdicts of node ``n`` of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.roster = Roster(ledger)
        self.number = self.roster.touch("n")
        self.refusals = Refusals(ledger, self.roster)

    async def verdict(self, demand: Demand) -> Verdict:
        """What the node says, by either way that a filter may take."""
        if not self.refusals.doubts(demand, [self.number]):
            return FITS
        [found] = await self.refusals.verdicts(demand, ["n"], [self.number])
        return found

    def touch(self) -> None:
        """The books changed."""
        self.refusals.touch(self.roster.touch("n"))


DEMANDS = st.builds(
    lambda mem, core, cards: Demand((Ask(mem, core),), mem=mem, core=core, cards=cards),
    st.integers(1, 20),
    st.sampled_from((0, 0, 30)),
    st.sampled_from((1, 1, 2)),
)


@given(
    units=st.lists(st.integers(1, 16), min_size=1, max_size=3),
    holders=HOLDERS,
    unhealthy=st.integers(0, 5),
    demands=st.lists(DEMANDS, min_size=1, max_size=12),
)
@settings(max_examples=200, deadline=None)
def test_kept_verdicts_are_those_of_the_core(
    units: list[int], holders: list[tuple[int, int]], unhealthy: int, demands: list[Demand]
) -> None:
    """Any order of demands gives each the sentence, code and finality that the core gives."""
    ledger = books(units, holders, unhealthy)
    asked = Asked(ledger)
    for demand in demands:
        expected = fit(ledger.node("n"), demand)
        found = asyncio.run(asked.verdict(demand))
        if expected is None:
            assert found is FITS
            continue
        assert found.text == sentence(expected)
        assert (found.code, found.unresolvable) == (expected.code, expected.unresolvable)


async def test_a_change_of_the_books_changes_the_words() -> None:
    """What was kept of a node is dropped when it is touched."""
    ledger = books([10], [(0, 4)], 9)
    asked = Asked(ledger)
    demand = Demand((Ask(8),), mem=8)
    before = await asked.verdict(demand)
    item = placed(pod("more", 3), "n", 0)
    ledger.pod_changed(decode_pod(json.dumps(item).encode()))
    asked.touch()
    after = await asked.verdict(demand)
    assert "card 0 has 6 of 10 free" in before.text
    assert "card 0 has 3 of 10 free" in after.text


async def test_a_name_that_is_not_known_is_refused_for_good() -> None:
    """It neither voids the answer nor is it remembered."""
    asked = Asked(books([10], [], 9))
    names = ["x", "n", "y"]
    numbers = asked.roster.numbers(names)
    assert list(asked.refusals.doubts(Demand((Ask(8),), mem=8), numbers)) == [0, 2]
    found = await asked.refusals.verdicts(Demand((Ask(8),), mem=8), names, numbers)
    assert [one.code for one in found] == [Code.NODE_UNKNOWN, None, Code.NODE_UNKNOWN]
    assert found[0].unresolvable
    assert len(asked.roster) == 2
