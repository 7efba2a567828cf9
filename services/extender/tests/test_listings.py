"""Lists of names: what filter sent is known when it comes back, by the numbers of now."""

import json
from unittest.mock import AsyncMock

import msgspec
import pytest
from objects import node, pod

from gpucore.gangplaces import Rules
from gpucore.grouping import BY_LINKS
from gpucore.ledger import Ledger
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpuextender.filter import Filter
from gpuextender.gangs import Gangs
from gpuextender.listings import KEPT, Listings
from gpuextender.messages import MessageError
from gpuextender.prioritize import Prioritize
from gpuextender.requeue import Requeue
from gpuextender.roster import NOBODY, Roster
from gpuextender.state import State


def come(ledger: Ledger, roster: Roster, name: str) -> None:
    """A node joins."""
    ledger.node_changed(decode_node(json.dumps(node(name, 16, unit="GiB")).encode()))
    roster.touch(name)


def leave(ledger: Ledger, roster: Roster, name: str) -> None:
    """A node goes."""
    ledger.node_gone(name)
    roster.touch(name)


def raw(*names: str) -> msgspec.Raw:
    """Names as a scheduler sends them."""
    return msgspec.Raw(json.dumps(names, separators=(",", ":")).encode())


def test_a_list_that_was_sent_is_not_read_again() -> None:
    """The same bytes give the same list; other bytes are read."""
    listings = Listings(Roster(Ledger(DEFAULT_NAMES)))
    first = listings.read(raw("a", "b", "c"))
    left = first.without({1})
    assert listings.sent(left) == raw("a", "c")
    assert listings.read(raw("a", "c")) is left
    assert listings.read(raw("c", "a")).names == ["c", "a"]


def test_a_list_that_lost_nothing_is_sent_as_it_came() -> None:
    """Spaces and all, for it is not written anew."""
    listings = Listings(Roster(Ledger(DEFAULT_NAMES)))
    given = msgspec.Raw(b'[ "a",  "b" ]')
    assert listings.sent(listings.read(given).without(())) == given


def test_a_few_lists_are_kept_and_no_more() -> None:
    """The list sent longest ago is read again."""
    listings = Listings(Roster(Ledger(DEFAULT_NAMES)))
    sent = [listings.read(raw(str(number))) for number in range(KEPT + 1)]
    for one in sent:
        listings.sent(one)
    found = [listings.read(raw(str(number))) is one for number, one in enumerate(sent)]
    assert found == [False] + [True] * KEPT


def test_numbers_of_a_kept_list_are_of_now() -> None:
    """A node that came is found, one that went is nobody, and its number may be another's."""
    ledger = Ledger(DEFAULT_NAMES)
    roster = Roster(ledger)
    listings = Listings(roster)
    come(ledger, roster, "a")
    listing = listings.read(raw("a", "b"))
    [a, unknown] = listing.numbers
    assert unknown == NOBODY
    leave(ledger, roster, "a")
    come(ledger, roster, "b")
    assert list(listing.numbers) == [NOBODY, a]


@pytest.mark.parametrize("text", [b'"a"', b"[1]", b"{}", b'[["a"]]'])
def test_what_is_no_list_of_names_is_said_to_be_none(text: bytes) -> None:
    """In words that may be sent back."""
    with pytest.raises(MessageError, match="cannot decode NodeNames"):
        Listings(Roster(Ledger(DEFAULT_NAMES))).read(msgspec.Raw(text))


async def test_what_filter_answered_is_rated_by_the_nodes_of_now() -> None:
    """A node that went between both questions scores 0, and the one with its number is not it."""
    state = State(DEFAULT_NAMES)
    roster = Roster(state.ledger)
    listings, gangs = Listings(roster), Gangs(state, Rules("binpack", BY_LINKS))
    requeue = Requeue(state, AsyncMock(), gangs, roster)
    filter_ = Filter(state, gangs, roster, listings, requeue)
    prioritize = Prioritize(state, gangs, roster, listings, policy="binpack", grouping=BY_LINKS)

    def touched(name: str) -> None:
        number = roster.touch(name)
        filter_.touch(number)
        prioritize.touch(number)

    state.tell(touched)
    for name in "ab":
        state.node_changed(decode_node(json.dumps(node(name, 16, unit="GiB")).encode()))
    asked = pod("asked", 8)
    question = json.dumps({"Pod": asked, "NodeNames": ["b", "a"]}).encode()
    answer = await filter_.answer(question)
    assert json.loads(bytes(answer.node_names)) == ["b", "a"]
    state.node_gone("a")
    state.node_changed(decode_node(json.dumps(node("c", 8, unit="GiB")).encode()))
    again = msgspec.json.encode({"Pod": asked, "NodeNames": answer.node_names})
    scores = {one["Host"]: one["Score"] for one in json.loads(await prioritize.answer(again))}
    assert scores == {"b": 5, "a": 0}
