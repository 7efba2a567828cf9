"""A scheduler that hears of freed room before the extender does is not sent away for minutes."""

import asyncio
import json
from functools import partial

import pytest
from objects import node, placed, pod
from running import WAIT_SECONDS

from gpucore.gangplaces import Rules
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpuextender import filter as filter_module
from gpuextender.filter import Filter
from gpuextender.gangs import Gangs
from gpuextender.latenews import LateNews
from gpuextender.listings import Listings
from gpuextender.roster import Roster
from gpuextender.state import State

UID = PodUid("u")
ENOUGH_TURNS = 50
"""Of the loop, for an answer that waits for nothing."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal waits until the news is there: how long is not what is looked at."""
    monkeypatch.setattr(filter_module, "LateNews", partial(LateNews, patience=60, rest=60))


def filter_of(state: State) -> Filter:
    """The verb over these books, told of their changes as the service does it."""
    roster = Roster(state.ledger)
    verb = Filter(state, Gangs(state, Rules()), roster, Listings(roster))

    def touch(name: NodeName) -> None:
        verb.touch(roster.touch(name))

    state.tell(touch)
    return verb


async def test_a_first_refusal_is_said_at_once() -> None:
    """Nothing was freed for a pod that nobody has refused before."""
    late = LateNews(patience=60, rest=60)
    assert not await late.heard(late.deadline(UID))


async def test_a_pod_refused_before_waits_for_a_change_of_the_books() -> None:
    """It is woken by the change, long before its patience ends."""
    late = LateNews(patience=60, rest=60)
    late.deadline(UID)
    async with asyncio.timeout(WAIT_SECONDS):
        waiting = asyncio.create_task(late.heard(late.deadline(UID)))
        await asyncio.sleep(0)
        assert not waiting.done()
        late.change()
        assert await waiting


async def test_a_change_from_before_the_question_is_no_news() -> None:
    """The books that refused had it already."""
    late = LateNews(patience=0.01, rest=60)
    late.deadline(UID)
    late.change()
    assert not await late.heard(late.deadline(UID))


async def test_of_pods_tried_again_together_one_waits() -> None:
    """A scheduler asks for one pod at a time: a thousand that wait must not hold it up in turn."""
    late = LateNews(patience=60, rest=60)
    uids = [PodUid(str(number)) for number in range(3)]
    for uid in uids:
        late.deadline(uid)
    assert [bool(late.deadline(uid)) for uid in uids] == [True, False, False]


@pytest.mark.usefixtures("patient")
async def test_room_freed_a_moment_after_the_question_is_given() -> None:
    """The watch brings the end of a pod while the next one is being asked about."""
    state = State(DEFAULT_NAMES)
    verb = filter_of(state)
    state.node_changed(decode_node(json.dumps(node("n", 16)).encode()))
    holder = decode_pod(json.dumps(placed(pod("holder", 16), "n", 0)).encode())
    state.pod_changed(holder)
    question = json.dumps({"Pod": pod("waiting", 16), "NodeNames": ["n"]}).encode()
    assert bytes((await verb.answer(question)).node_names) == b"[]"

    async with asyncio.timeout(WAIT_SECONDS):
        again = asyncio.create_task(verb.answer(question))
        for _ in range(ENOUGH_TURNS):
            await asyncio.sleep(0)
        assert not again.done()
        state.pod_gone(holder)
        assert bytes((await again).node_names) == b'["n"]'
