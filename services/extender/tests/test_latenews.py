"""A scheduler that hears of freed room before the extender does is not sent away for minutes."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from objects import Object, node, placed, pod
from running import WAIT_SECONDS, Running, until

from gpucore.gangplaces import Rules
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import Pod, decode_pod
from gpuextender import filter as filter_module
from gpuextender.filter import Filter
from gpuextender.gangs import Gangs
from gpuextender.latenews import LateNews
from gpuextender.listings import Listings
from gpuextender.messages import FilterResult
from gpuextender.roster import Roster
from gpuextender.state import State
from gpukube.testing.apiserver import FakeApiServer

UID = PodUid("u")
ENOUGH_TURNS = 50
"""Of the loop, for an answer that waits for nothing."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal waits until the news is there: how long is not what is looked at."""
    monkeypatch.setattr(filter_module, "LateNews", partial(LateNews, patience=(60, 60), rest=60))


def filter_of(state: State) -> Filter:
    """The verb over these books, told of their changes as the service does it."""
    roster = Roster(state.ledger)
    verb = Filter(state, Gangs(state, Rules()), roster, Listings(roster))

    def touch(name: NodeName) -> None:
        verb.touch(roster.touch(name))

    state.tell(touch, verb.pod_came)
    return verb


def question(item: Object) -> bytes:
    """Whether a pod may go to the node n."""
    return json.dumps({"Pod": item, "NodeNames": ["n"]}).encode()


async def waits(task: asyncio.Task[FilterResult]) -> bool:
    """It is not answered, however often the loop turns."""
    for _ in range(ENOUGH_TURNS):
        await asyncio.sleep(0)
    return not task.done()


def full() -> tuple[State, Filter, Pod]:
    """Books with one node, and the pod that fills it."""
    state = State(DEFAULT_NAMES)
    verb = filter_of(state)
    state.node_changed(decode_node(json.dumps(node("n", 16)).encode()))
    holder = decode_pod(json.dumps(placed(pod("holder", 16), "n", 0)).encode())
    state.pod_changed(holder)
    return state, verb, holder


async def test_a_first_refusal_is_said_at_once() -> None:
    """Nothing was freed for a pod that nobody has refused before."""
    late = LateNews(patience=(60, 60), rest=60)
    assert not await late.heard(late.deadline(UID), since=late.count)


async def test_a_pod_that_the_watch_has_not_brought_waits_at_its_first_refusal() -> None:
    """And so does the next one at once: the books are behind for all of them."""
    late = LateNews(patience=(60, 60), rest=60)
    for uid in (UID, PodUid("next")):
        waiting = asyncio.create_task(late.heard(late.deadline(uid, unseen=True), since=late.count))
        await asyncio.sleep(0)
        assert not waiting.done()
        late.change()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await waiting


async def test_a_wait_in_vain_is_followed_by_a_rest() -> None:
    """A watch that brings nothing must not hold up a scheduler pod by pod."""
    late = LateNews(patience=(60, 0.01), rest=60)
    assert not await late.heard(late.deadline(UID, unseen=True), since=late.count)
    assert not late.deadline(PodUid("next"), unseen=True)


async def test_a_pod_refused_before_waits_for_a_change_of_the_books() -> None:
    """It is woken by the change, long before its patience ends."""
    late = LateNews(patience=(60, 60), rest=60)
    late.deadline(UID)
    async with asyncio.timeout(WAIT_SECONDS):
        waiting = asyncio.create_task(late.heard(late.deadline(UID), since=late.count))
        await asyncio.sleep(0)
        assert not waiting.done()
        late.change()
        assert await waiting


async def test_a_change_from_before_the_question_is_no_news() -> None:
    """The books that refused had it already."""
    late = LateNews(patience=(0.01, 60), rest=60)
    late.deadline(UID)
    late.change()
    assert not await late.heard(late.deadline(UID), since=late.count)


async def test_of_pods_tried_again_together_one_waits() -> None:
    """A scheduler asks for one pod at a time: a thousand that wait must not hold it up in turn."""
    late = LateNews(patience=(60, 60), rest=60)
    uids = [PodUid(str(number)) for number in range(3)]
    for uid in uids:
        late.deadline(uid)
    assert [bool(late.deadline(uid)) for uid in uids] == [True, False, False]


@pytest.mark.usefixtures("patient")
async def test_room_freed_a_moment_after_the_question_is_given() -> None:
    """The watch brings the end of a pod while the next one is being asked about."""
    state, verb, holder = full()
    item = pod("waiting", 16)
    state.pod_changed(decode_pod(json.dumps(item).encode()))
    async with asyncio.timeout(WAIT_SECONDS):
        assert bytes((await verb.answer(question(item))).node_names) == b"[]"
        again = asyncio.create_task(verb.answer(question(item)))
        assert await waits(again)
        state.pod_gone(holder)
        assert bytes((await again).node_names) == b'["n"]'


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("freed", "names"), [(True, b'["n"]'), (False, b"[]")])
async def test_a_new_pod_is_judged_by_books_that_are_as_new(*, freed: bool, names: bytes) -> None:
    """What ended before it was made comes before it; then it is answered, whatever came."""
    state, verb, holder = full()
    item = pod("new", 16)
    async with asyncio.timeout(WAIT_SECONDS):
        answer = asyncio.create_task(verb.answer(question(item)))
        assert await waits(answer)
        if freed:
            state.pod_gone(holder)
        state.pod_changed(decode_pod(json.dumps(item).encode()))
        assert bytes((await answer).node_names) == names


@pytest.mark.usefixtures("patient")
async def test_news_that_come_while_nodes_are_judged_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Judging many nodes gives way to the watch: what it brought then is looked at at once."""
    state, verb, holder = full()
    item = pod("new", 16)
    judged = verb._judged

    async def slowly(*args: Any) -> Any:
        answer = await judged(*args)
        if not state.watched(decode_pod(json.dumps(item).encode())):
            state.pod_gone(holder)
            state.pod_changed(decode_pod(json.dumps(item).encode()))
        return answer

    monkeypatch.setattr(verb, "_judged", slowly)
    async with asyncio.timeout(WAIT_SECONDS):
        assert bytes((await verb.answer(question(item))).node_names) == b'["n"]'


async def test_the_watch_wakes_a_question_that_waits(
    patient: None, cluster: FakeApiServer, extender: Running
) -> None:
    """In the service itself, the pod's own coming is enough: it is then told why it must wait."""
    await cluster.put("nodes", node("n", 16))
    await extender.knows_node("n")
    holder = placed(pod("holder", 16), "n", 0)
    await cluster.put("pods", holder)
    await extender.knows_pod(holder["metadata"]["uid"])
    item = pod("new", 16)
    uid = item["metadata"]["uid"]
    asked = asyncio.create_task(extender.filter(item, "n"))
    await until("it is asked about", lambda: extender.state.asking("default", "new", uid))
    assert not asked.done()
    await cluster.put("pods", item)
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await asked)["NodeNames"] == []
