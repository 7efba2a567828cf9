"""The informer under a fake clock: each request, when it is sent, and what is known between."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import structlog
from following import NODES, UNCHECKED, FakeHandler
from kubeobjects import node

from gpucore.wire.errors import WireError
from gpucore.wire.node.spec import Node, decode_node
from gpukube.backoff import Backoff
from gpukube.errors import UnreachableError
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import Reply, ScriptedClient, Stream, failure
from gpukube.watch import informer as informer_module
from gpukube.watch.collection import Collection, collection_of
from gpukube.watch.informer import Informer

LOST = UnreachableError("connection reset")
FOREVER = 1e9
QUIET: Stream = [FOREVER]
WATCH_SECONDS = 400
SILENCE = 90.0


class Longest(random.Random):
    """No jitter: waits are whole steps."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Counting:
    """Counts lists and failures."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def listed(self, name: str) -> None:
        self.seen.append(f"listed {name}")

    def failed(self, name: str) -> None:
        self.seen.append(f"failed {name}")


class Bench:
    """An informer of nodes, its client and its handler."""

    def __init__(
        self, *replies: Reply | Stream, collection: Collection[Node] = NODES, **options: Any
    ) -> None:
        self.api = ScriptedClient(*replies)
        self.handler, self.observer = FakeHandler(), Counting()
        waits = Backoff(first=1.0, last=16.0, healthy=120.0, source=Longest())
        options = {"silence": SILENCE, "backoff": waits, "observer": self.observer} | options
        self.informer = Informer(self.api, collection, self.handler, **options)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run beside the test; a request that is not expected fails it."""
        task = asyncio.create_task(self.informer.run())
        try:
            yield
            assert not task.done() or task.result() is None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def sent(self) -> list[str]:
        """The kinds of the requests: ``list``, ``probe``, or ``watch`` with its version."""
        return [_kind(one.method, one.body or {}) for one in self.api.requests]

    def times(self) -> list[float]:
        """When each request was sent, in seconds after the first."""
        first = self.api.requests[0].at
        return [pytest.approx(one.at - first) for one in self.api.requests]


def _kind(method: str, query: dict[str, Any]) -> str:
    if method == "WATCH":
        return f"watch {query['resourceVersion']}"
    if "fieldSelector" in query:
        return "probe"
    return "first list" if query.get("resourceVersion") == "0" else "list"


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Ages are those of the loop, and the time-out of a watch is always the same."""
    monkeypatch.setattr(informer_module, "monotonic", clock.now)
    monkeypatch.setattr(informer_module.random, "randint", lambda *_: WATCH_SECONDS)


def a_list(version: int, *names: str) -> bytes:
    """A list at a resource version."""
    items = [node(name) for name in names]
    return json.dumps({"metadata": {"resourceVersion": str(version)}, "items": items}).encode()


def event(kind: str, name: str, version: int) -> bytes:
    """A line of a watch."""
    item = node(name)
    item["metadata"]["resourceVersion"] = str(version)
    return json.dumps({"type": kind, "object": item}).encode()


def bookmark(version: int) -> bytes:
    """A line that carries only a version."""
    metadata = {"resourceVersion": str(version)}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode()


def error(code: int) -> bytes:
    """A failure inside a watch."""
    return json.dumps({"type": "ERROR", "object": {"code": code, "message": "old"}}).encode()


async def test_it_lists_then_watches_from_the_version_of_the_list() -> None:
    """The watch requests bookmarks and a time-out, and is given up after the silence."""
    bench = Bench(a_list(5, "a"), QUIET)
    assert bench.informer.age == float("inf")
    assert not bench.informer.confirmed
    async with bench.running():
        await bench.informer.wait_for_sync()
        assert bench.informer.confirmed
        await asyncio.sleep(7)
        assert bench.informer.age == pytest.approx(7, abs=0.1)
        assert bench.sent() == ["first list", "watch 5"]
        assert bench.api.requests[1].path == "/api/v1/nodes"
        assert bench.api.requests[1].body == {
            "resourceVersion": "5",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            "silence": SILENCE,
        }
        assert bench.observer.seen == ["listed nodes"]
        assert (bench.handler.items, bench.handler.lists) == ({"a"}, 1)


async def test_a_watch_that_ends_resumes_at_once_from_the_last_version() -> None:
    """Events and bookmarks move the version; a clean end is no failure."""
    stream: Stream = [[event("ADDED", "b", 6)], 100.0, [event("DELETED", "a", 7), bookmark(9)], 200]
    bench = Bench(a_list(5, "a"), stream, QUIET)
    async with bench.running():
        await asyncio.sleep(50)
        assert (bench.handler.items, bench.informer.version) == ({"a", "b"}, "6")
        await asyncio.sleep(300)
        assert bench.handler.calls == [("changed", "b"), ("gone", "a")]
        assert bench.sent() == ["first list", "watch 5", "watch 9"]
        assert bench.times() == [0, 0, 300]
        assert bench.observer.seen == ["listed nodes"]


async def test_after_a_failure_the_version_is_checked_before_the_watch_goes_on() -> None:
    """Between the two the informer is not confirmed, and its age grows."""
    bench = Bench(a_list(5), [50.0, LOST], a_list(8), QUIET)
    async with bench.running():
        await asyncio.sleep(50.5)
        assert not bench.informer.confirmed
        assert bench.informer.age == pytest.approx(50.5, abs=0.1)
        waiting = asyncio.create_task(bench.informer.wait_for_confirmation())
        await asyncio.sleep(0)
        assert not waiting.done()
        await waiting
        await asyncio.sleep(1)
        assert bench.sent() == ["first list", "watch 5", "probe", "watch 5"]
        assert bench.times() == [0, 0, 51, 51]
        assert bench.observer.seen == ["listed nodes", "failed nodes"]
        assert bench.handler.lists == 1


async def test_a_pause_ends_once_something_shows_that_the_server_answers() -> None:
    """Failures right after that pause for a moment only, so that a list follows at once."""
    bench = Bench(a_list(5), failure(410), failure(500), failure(500), a_list(9), QUIET)
    async with bench.running():
        await asyncio.sleep(5)
        assert bench.times() == [0, 0, 1, 3]
        bench.informer.retry_now()
        await asyncio.sleep(1)
        assert bench.times() == [0, 0, 1, 3, 5, 5]
        assert bench.informer.confirmed


async def test_failures_right_after_that_pause_for_a_tenth_of_a_second() -> None:
    """For two seconds; those after that wait for as long as before."""
    bench = Bench(a_list(5), failure(410), *[failure(500)] * 24, a_list(9), QUIET)
    async with bench.running():
        await asyncio.sleep(2)
        bench.informer.retry_now()
        await asyncio.sleep(100)
        sent = [one.at for one in bench.api.requests]
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(sent)]
    hurried = pauses.count(0.1)
    assert 19 <= hurried <= 21
    assert pauses[: 3 + hurried] == [0, 1, 1, *[0.1] * hurried]
    assert set(pauses[3 + hurried : -1]) == {16}


async def test_a_hurry_never_lengthens_a_pause() -> None:
    """A pause that is shorter than a tenth of a second stays as short."""
    quick = Backoff(first=0.02, last=0.02, source=Longest())
    bench = Bench(a_list(5), failure(410), failure(500), a_list(9), QUIET, backoff=quick)
    async with bench.running():
        bench.informer.retry_now()
        await asyncio.sleep(1)
        assert bench.times() == [0, 0, 0.02, 0.04, 0.04]


async def test_a_hurry_that_met_no_failure_shortens_no_later_pause() -> None:
    """A call while all works has no effect once its two seconds are over."""
    bench = Bench(a_list(5), [10.0, LOST], a_list(5), QUIET)
    async with bench.running():
        await asyncio.sleep(1)
        bench.informer.retry_now()
        await asyncio.sleep(20)
        assert bench.times() == [0, 0, 11, 11]


async def test_a_pause_that_the_server_requested_is_kept() -> None:
    """A hurry does not burden a server that limits its clients."""
    bench = Bench(a_list(5), failure(429, retry_after="7"), a_list(9), QUIET)
    async with bench.running():
        await asyncio.sleep(2)
        bench.informer.retry_now()
        await asyncio.sleep(10)
        assert bench.times()[2] == 7


async def test_a_version_that_went_back_makes_everything_old_at_once() -> None:
    """The server was restored: no decision is taken until it was listed again."""
    bench = Bench(a_list(5, "a"), [50.0, LOST], a_list(3), a_list(3, "b"), QUIET)
    async with bench.running():
        await asyncio.sleep(51.5)
        assert bench.sent() == ["first list", "watch 5", "probe"]
        assert (bench.informer.age, bench.informer.confirmed) == (float("inf"), False)
        await asyncio.sleep(2)
        assert bench.sent()[3:] == ["list", "watch 3"]
        assert bench.times()[3:] == [53, 53]
        assert (bench.handler.items, bench.informer.confirmed) == ({"b"}, True)
        assert bench.informer.age < 1


async def test_an_event_of_an_older_version_is_not_handed_over() -> None:
    """It proves a restore, as the check of the version does."""
    stream: Stream = [[event("ADDED", "b", 9)], 10.0, [event("ADDED", "c", 8)]]
    bench = Bench(a_list(5), stream, a_list(8, "c"), QUIET)
    async with bench.running():
        await asyncio.sleep(10.5)
        assert bench.handler.items == {"b"}
        assert bench.informer.age == float("inf")
        await asyncio.sleep(1)
        assert bench.handler.items == {"c"}
        assert bench.sent() == ["first list", "watch 5", "list", "watch 8"]


@pytest.mark.parametrize(
    "end", [failure(410), failure(504), [[error(410)]], [[b'{"type": "ADDED", "object": 7}']]]
)
async def test_a_watch_that_cannot_go_on_leads_to_a_list(end: Reply | Stream) -> None:
    """410, 504, the same inside the stream, and a line that is no event; after a pause."""
    bench = Bench(a_list(5, "a"), end, a_list(9, "b"), QUIET)
    async with bench.running():
        await asyncio.sleep(3)
        assert bench.sent() == ["first list", "watch 5", "list", "watch 9"]
        assert bench.times() == [0, 0, 1, 1]
        assert bench.handler.items == {"b"}


@pytest.mark.parametrize(("reply", "wait"), [(failure(429, retry_after="7"), 7), (failure(500), 1)])
async def test_a_busy_server_is_waited_for_without_a_list(reply: Exception, wait: float) -> None:
    """Retry-After counts, to the watch and to the check of the version alike."""
    bench = Bench(a_list(5), reply, reply, a_list(5), QUIET)
    async with bench.running():
        await asyncio.sleep(20)
        assert bench.sent() == ["first list", "watch 5", "probe", "probe", "watch 5"]
        assert bench.times()[2] == wait


async def test_waits_grow_and_start_over_after_a_long_watch() -> None:
    """A watch that worked for the healthy time ends the series of failures."""
    failures = [LOST] * 5
    stream: Stream = [100.0, [bookmark(6)], 30.0, [bookmark(7)], 5.0, LOST]
    bench = Bench(a_list(5), *failures, a_list(5), stream, a_list(7), QUIET)
    async with bench.running():
        await asyncio.sleep(300)
        assert bench.times()[1:7] == [0, 1, 3, 7, 15, 31]
        assert bench.sent()[7:] == ["watch 5", "probe", "watch 7"]
        assert bench.times()[7:] == [31, 167, 167]


@pytest.mark.parametrize(("relist_after", "last"), [(20.0, "list"), (31.0, "watch 5")])
async def test_a_long_outage_leads_to_a_list(relist_after: float, last: str) -> None:
    """A restored server may have passed the old version meanwhile; a short outage costs none.

    The outage lasts until the server replies, not until the last failure.
    """
    replies: list[Reply | Stream] = [a_list(5), *[LOST] * 5, a_list(9)]
    replies += [a_list(9), QUIET] if last == "list" else [QUIET]
    bench = Bench(*replies, relist_after=relist_after)
    async with bench.running():
        await asyncio.sleep(100)
        assert bench.sent()[1:7] == ["watch 5", *["probe"] * 5]
        assert bench.sent()[7] == last
        assert bench.informer.confirmed


@pytest.mark.parametrize("end", [[], [LOST]])
async def test_a_watch_that_was_silent_for_its_whole_time_leads_to_a_list(end: Stream) -> None:
    """The server may wait for a version that it lost; most of the silence is enough."""
    bench = Bench(a_list(5), [0.91 * SILENCE, *end], a_list(5), QUIET)
    async with bench.running():
        await asyncio.sleep(2 * SILENCE)
        assert bench.sent() == ["first list", "watch 5", "list", "watch 5"]


async def test_a_watch_that_is_given_up_leads_to_a_list_at_once() -> None:
    """Nothing is confirmed before that; what the watch still brings is not handed over."""
    late: Stream = [50.0, [event("ADDED", "late", 6)], FOREVER]
    bench = Bench(a_list(5, "a"), late, a_list(9, "b"), QUIET)
    async with bench.running():
        await asyncio.sleep(10)
        bench.informer.list_again()
        assert not bench.informer.confirmed
        bench.informer.list_again()
        await bench.informer.wait_for_confirmation()
        await asyncio.sleep(100)
        assert bench.sent() == ["first list", "watch 5", "list", "watch 9"]
        assert bench.times() == [0, 0, 10, 10]
        assert bench.observer.seen == ["listed nodes", "failed nodes", "listed nodes"]
        assert bench.handler.items == {"b"}


async def test_without_a_watch_there_is_none_to_give_up() -> None:
    """A list is on its way or follows a failure anyway."""
    bench = Bench(failure(500), a_list(5, "a"), QUIET)
    bench.informer.list_again()
    async with bench.running():
        await asyncio.sleep(0.5)
        bench.informer.list_again()
        await asyncio.sleep(100)
        assert bench.sent() == ["first list", "list", "watch 5"]
        assert bench.observer.seen == ["failed nodes", "listed nodes"]


async def test_a_short_silence_is_no_reason_for_a_list() -> None:
    """The connection broke before the silence was over."""
    bench = Bench(a_list(5), [0.89 * SILENCE, LOST], a_list(5), QUIET)
    async with bench.running():
        await asyncio.sleep(2 * SILENCE)
        assert bench.sent() == ["first list", "watch 5", "probe", "watch 5"]


@pytest.mark.parametrize("lasted", [0.0, 0.9])
async def test_a_watch_that_ends_within_a_second_counts_as_a_failure(lasted: float) -> None:
    """It is not opened again in a tight loop, although it delivered something."""
    bench = Bench(a_list(5), [[bookmark(6)], lasted], a_list(6), QUIET)
    async with bench.running():
        await asyncio.sleep(5)
        assert bench.sent() == ["first list", "watch 5", "probe", "watch 6"]
        assert bench.times()[2] == lasted + 1
        assert bench.observer.seen == ["listed nodes", "failed nodes"]


@pytest.mark.parametrize("code", [403, 500])
async def test_a_first_list_that_fails_is_followed_by_a_consistent_one(code: int) -> None:
    """Not synced until one is complete: a list that is forbidden is not an empty one."""
    bench = Bench(failure(code), LOST, a_list(5, "a"), QUIET)
    async with bench.running():
        await asyncio.sleep(2.5)
        assert not bench.informer.synced.is_set()
        assert bench.informer.age == float("inf")
        assert bench.handler.lists == 0
        await asyncio.sleep(1)
        assert bench.informer.synced.is_set()
        assert bench.sent() == ["first list", "list", "list", "watch 5"]
        assert bench.times() == [0, 1, 3, 3]


async def test_without_a_path_for_the_check_the_watch_goes_on_at_once() -> None:
    """A collection that has none is confirmed by the end of the pause."""
    bench = Bench(a_list(5), [50.0, LOST], QUIET, collection=UNCHECKED)
    async with bench.running():
        await asyncio.sleep(52)
        assert bench.sent() == ["first list", "watch 5", "watch 5"]
        assert bench.informer.confirmed


async def test_lists_and_failures_are_logged() -> None:
    """With the collection, the figures of the list, and the error and the wait of a failure."""
    bench = Bench(a_list(5, "a", "b"), [5.0, LOST], a_list(4), a_list(4), QUIET)
    with structlog.testing.capture_logs() as logs:
        async with bench.running():
            await asyncio.sleep(60)
    about = {"collection": "nodes"}
    warning, info = about | {"log_level": "warning"}, about | {"log_level": "info"}
    back = "nodes: from 5 to 4"
    assert logs == [
        info | {"event": "listed", "items": 2, "version": "5"},
        warning | {"event": "informer failed", "error": "connection reset", "wait": 1.0},
        warning | {"event": "informer failed", "error": back, "wait": 2.0},
        warning | {"event": "version went back", "was": "5", "now": "4"},
        info | {"event": "listed", "items": 0, "version": "4"},
    ]


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_the_first_list_arrives_whole_or_in_pieces(*, in_pieces: bool) -> None:
    """In pieces its objects are updates; later lists always replace everything."""
    bench = Bench(a_list(5, "a"), failure(410), a_list(6, "b"), QUIET, in_pieces=in_pieces)
    async with bench.running():
        await bench.informer.wait_for_sync()
        assert bench.handler.items == {"a"}
        assert (bench.handler.lists, len(bench.handler.calls)) == (not in_pieces, in_pieces)
        await asyncio.sleep(3)
        assert bench.handler.items == {"b"}
        assert bench.handler.lists == 1 + (not in_pieces)


async def test_the_time_out_of_a_watch_is_drawn_from_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five to ten minutes, so that many processes do not return together."""
    drawn: list[tuple[int, int]] = []

    def draw(low: int, high: int) -> int:
        drawn.append((low, high))
        return high

    monkeypatch.setattr(informer_module.random, "randint", draw)
    bench = Bench(a_list(5), QUIET)
    async with bench.running():
        await asyncio.sleep(1)
    assert drawn == [(300, 600)]
    assert bench.api.requests[1].body["timeoutSeconds"] == "600"


async def test_other_work_runs_during_a_flood_of_events() -> None:
    """The loop turns every few events, however many come together."""
    flood = [event("ADDED", f"n{number}", number + 6) for number in range(100)]
    bench = Bench(a_list(5), [flood, FOREVER])
    turns: list[int] = []
    async with bench.running():
        while len(bench.handler.items) < 100:
            turns.append(len(bench.handler.items))
            await asyncio.sleep(0)
    turns.append(len(bench.handler.items))
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 16


async def test_lines_of_an_earlier_watch_do_not_count_for_a_silent_one() -> None:
    """A server that was restored meanwhile keeps the next watch open in silence."""
    stream: Stream = [[event("ADDED", "b", 6)], 100.0]
    bench = Bench(a_list(5), stream, [SILENCE, LOST], a_list(6), QUIET)
    async with bench.running():
        await asyncio.sleep(100 + 2 * SILENCE)
        assert bench.sent() == ["first list", "watch 5", "watch 6", "list", "watch 6"]


async def test_every_line_of_a_watch_makes_the_informer_current() -> None:
    """Its age is the time since the last one, a bookmark included."""
    bench = Bench(a_list(5), [30.0, [event("ADDED", "b", 6)], 30.0, [bookmark(7)], FOREVER])
    async with bench.running():
        for after, age in ((20, 20), (20, 10), (30, 10)):
            await asyncio.sleep(after)
            assert bench.informer.age == pytest.approx(age, abs=0.1)


async def test_a_watch_with_a_short_time_out_is_silent_after_most_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever is shorter: its time-out, or the silence that is allowed."""
    monkeypatch.setattr(informer_module.random, "randint", lambda *_: 50)
    bench = Bench(a_list(5), [46.0], a_list(5), QUIET)
    async with bench.running():
        await asyncio.sleep(60)
        assert bench.sent() == ["first list", "watch 5", "list", "watch 5"]


async def test_the_handler_gets_each_object_with_its_line() -> None:
    """It reads from it what the object does not have."""
    bench = Bench(a_list(5), [[event("ADDED", "b", 6), event("MODIFIED", "b", 7)], FOREVER])
    lines: list[bytes] = []
    bench.handler.on_update = lambda _, line: lines.append(line)  # type: ignore[method-assign]
    async with bench.running():
        await asyncio.sleep(1)
    assert lines == [event("ADDED", "b", 6), event("MODIFIED", "b", 7)]


async def test_watches_that_end_early_or_in_silence_are_logged_by_their_cause() -> None:
    """With the name of the collection."""
    bench = Bench(a_list(5), [0.5], a_list(5), [SILENCE, LOST], a_list(5), QUIET)
    with structlog.testing.capture_logs() as logs:
        async with bench.running():
            await asyncio.sleep(2 * SILENCE)
    errors = [each["error"] for each in logs if each["event"] == "informer failed"]
    assert errors == ["watch nodes: ended as soon as it began", "watch nodes: nothing for 90 s"]


async def test_an_outage_begins_with_its_first_failure() -> None:
    """A second outage is counted from its own first failure."""
    stream: Stream = [100.0, [bookmark(6)], 100.0, LOST]
    replies: list[Reply | Stream] = [a_list(5), LOST, a_list(5), stream, a_list(6), QUIET]
    bench = Bench(*replies, relist_after=50.0)
    async with bench.running():
        await asyncio.sleep(400)
        assert bench.sent()[1:] == ["watch 5", "probe", "watch 5", "probe", "watch 6"]


NO_LIST = b'{"kind":"Status","metadata":{},"status":"Failure"}'


async def test_an_answer_without_a_version_is_no_empty_list() -> None:
    """A proxy in between may answer 200 with a page of its own: what is known stays."""
    bench = Bench(NO_LIST, a_list(5, "a"), [[error(410)]], NO_LIST, a_list(7, "a"), QUIET)
    async with bench.running():
        await bench.informer.wait_for_sync()
        assert bench.handler.items == {"a"}
        await asyncio.sleep(60)
        assert bench.informer.version == "7"
        assert bench.observer.seen.count("listed nodes") == 2
        assert bench.handler.lists == 2


def decode_good(raw: msgspec.Raw) -> Node:
    """Reads nodes whose name is not ``bad``."""
    found = decode_node(raw)
    if found.name == "bad":
        raise WireError("its name is bad")
    return found


async def test_an_object_that_cannot_be_decoded_is_left_out_and_logged() -> None:
    """Neither the list nor the watch fails for it."""
    events: Stream = [[event("ADDED", "bad", 6), event("ADDED", "b", 7)], FOREVER]
    goods = collection_of("nodes", "/api/v1/nodes", decode_good)
    bench = Bench(a_list(5, "bad", "a"), events, collection=goods)
    with structlog.testing.capture_logs() as logs:
        async with bench.running():
            await asyncio.sleep(1)
            assert bench.handler.items == {"a", "b"}
            assert bench.informer.version == "7"
    assert bench.sent() == ["first list", "watch 5"]
    left_out = [each["object"] for each in logs if each["event"] == "object left out"]
    assert left_out == ["/bad: its name is bad"] * 2
