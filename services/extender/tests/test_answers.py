"""What is kept of nodes by number: never older than their books, never more than was allowed."""

import asyncio
import json
from collections.abc import Sequence
from time import perf_counter

from hypothesis import given, settings
from hypothesis import strategies as st
from objects import node, placed, pod

from gpucore.gangplaces import Rules
from gpucore.grouping import BY_LINKS
from gpucore.ledger import Ledger
from gpucore.model import Ask, Demand
from gpucore.policy import score
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpuextender.answers import Answers
from gpuextender.gangs import Gangs
from gpuextender.listings import Listings
from gpuextender.prioritize import Prioritize
from gpuextender.roster import NOBODY, Roster
from gpuextender.state import State


def ledger_of(*names: str) -> Ledger:
    """Books of nodes with two cards each; fractions of their units are exact."""
    ledger = Ledger(DEFAULT_NAMES)
    for name in names:
        ledger.node_changed(decode_node(json.dumps(node(name, 8, 16, unit="GiB")).encode()))
    return ledger


def roster_of(ledger: Ledger) -> Roster:
    """Everybody of a ledger."""
    roster = Roster(ledger)
    for name in ledger.nodes():
        roster.touch(name)
    return roster


def test_numbers_hold_while_nodes_come_and_go() -> None:
    """A node keeps its number, one that went has none, and its number may serve another."""
    ledger = ledger_of("a", "b")
    roster = roster_of(ledger)
    [a, b] = roster.numbers(["a", "b"])
    ledger.node_gone("a")
    roster.touch("a")
    assert roster.numbers(["a", "b", "x"]) == [NOBODY, b, NOBODY]
    assert roster.share_rooms[a] == -1
    ledger.node_changed(decode_node(json.dumps(node("c", 7, unit="GiB")).encode()))
    assert roster.touch("c") == a
    roster.settle()
    assert roster.numbers(["b", "c"]) == [b, a]
    assert (roster.names[a], roster.share_rooms[a], roster.share_rooms[b]) == ("c", 7, 16)


async def test_only_what_was_touched_is_worked_out_again() -> None:
    """Asking again costs nothing; a touched node is asked anew, the others are not."""
    worked: list[int] = []

    def work(numbers: Sequence[int]) -> list[str]:
        worked.extend(numbers)
        return [f"answer {number} of {len(worked)}" for number in numbers]

    answers: Answers[str, str] = Answers(roster_of(ledger_of("a", "b", "c")))
    first = await answers.ask("q", [1, 2, 3], work)
    assert await answers.ask("q", [3, 2, 1], work) == first[::-1]
    answers.touch(2)
    assert await answers.ask("q", [1, 2, 3], work) == [first[0], "answer 2 of 4", first[2]]
    assert worked == [1, 2, 3, 2]


async def test_memory_of_answers_is_bounded() -> None:
    """The question least recently asked is forgotten first."""
    answers: Answers[int, str] = Answers(roster_of(ledger_of("a")), limit=2)
    answers.table(1)[1] = "one"
    answers.table(2)[1] = "two"
    answers.table(1)
    answers.table(3)
    assert answers.table(1)[1] == "one"
    assert answers.table(2)[1] is None


async def test_slow_answers_leave_room_for_others() -> None:
    """Working out much lets other tasks run in between, and what changed meanwhile is current."""
    names = [f"n{number}" for number in range(64)]
    roster = roster_of(ledger_of(*names))
    answers: Answers[str, str] = Answers(roster)
    state = "old"

    def work(numbers: Sequence[int]) -> list[str]:
        until = perf_counter() + 0.0005 * len(numbers)
        while perf_counter() < until:
            pass
        return [state] * len(numbers)

    asking = asyncio.create_task(answers.ask("q", roster.numbers(names), work))
    await asyncio.sleep(0)
    assert not asking.done()
    state = "new"
    for number in range(1, 65):
        answers.touch(number)
    assert set(await asking) == {"new"}


async def test_news_of_a_node_that_is_not_known_leaves_other_unknown_names_as_they_are() -> None:
    """A legacy list of ill cards may come before its node, or stay after it."""
    state = State(DEFAULT_NAMES)
    roster = Roster(state.ledger)
    gangs = Gangs(state, Rules("binpack", BY_LINKS))
    prioritize = Prioritize(
        state, gangs, roster, Listings(roster), policy="binpack", grouping=BY_LINKS
    )
    state.tell(lambda name: prioritize.touch(roster.touch(name)))
    state.node_gone("never")
    body = json.dumps({"Pod": pod("asked", 1), "NodeNames": ["x", "y"]}).encode()
    found = json.loads(await prioritize.answer(body))
    assert found == [{"Host": "x", "Score": 0}, {"Host": "y", "Score": 0}]


AMOUNTS = st.lists(st.tuples(st.integers(1, 20), st.sampled_from((0, 0, 30))), max_size=4)
CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.integers(1, 9)), max_size=6
)


@given(changes=CHANGES, amounts=AMOUNTS)
@settings(max_examples=60, deadline=None)
def test_kept_entries_are_the_scores_of_the_core(
    changes: list[tuple[str, int, int]], amounts: list[tuple[int, int]]
) -> None:
    """However the books change between the questions, each answer is what the core says then."""
    asyncio.run(_compare(changes, amounts))


async def _compare(changes: list[tuple[str, int, int]], amounts: list[tuple[int, int]]) -> None:
    def touched(name: str) -> None:
        prioritize.touch(roster.touch(name))

    state = State(DEFAULT_NAMES)
    state.tell(touched)
    roster = Roster(state.ledger)
    gangs = Gangs(state, Rules("binpack", BY_LINKS))
    prioritize = Prioritize(
        state, gangs, roster, Listings(roster), policy="binpack", grouping=BY_LINKS
    )
    for name in "abc":
        state.node_changed(decode_node(json.dumps(node(name, 8, 16, unit="GiB")).encode()))
    await prioritize.warm()
    for step, (name, card, units) in enumerate([("a", 0, 1), *changes]):
        item = placed(pod(f"p{step}", units), name, card)
        state.pod_changed(decode_pod(json.dumps(item).encode()))
        for mem, core in amounts:
            asked = pod("asked", mem, core=core)
            body = json.dumps({"Pod": asked, "NodeNames": ["c", "x", "a", "b"]}).encode()
            found = {one["Host"]: one["Score"] for one in json.loads(await prioritize.answer(body))}
            demand = Demand((Ask(mem, core),), mem=mem, core=core)
            said = {n: score(state.ledger.node(n), demand, "binpack") for n in "abc"}
            assert found == {**said, "x": 0}
