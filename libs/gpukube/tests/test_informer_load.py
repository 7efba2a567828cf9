"""What the informer costs an API server: no tight loops, no steps in time, cheap first lists."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from following import following
from kubeobjects import node

from gpukube.backoff import Backoff
from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer, Fault
from gpukube.testing.waiting import until
from gpukube.watch import first_list as firstlist
from gpukube.watch import informer

pytestmark = pytest.mark.slow

ROUNDS = 20


class CountingBackoff(Backoff):
    """Counts the failures, and hardly waits."""

    def __init__(self) -> None:
        super().__init__(first=0.001, last=0.001)
        self.failures = 0

    def after_failure(self, *, lasted: float, retry_after: float = 0) -> float:
        self.failures += 1
        return super().after_failure(lasted=lasted, retry_after=retry_after)


def ending(*lines: object) -> Fault:
    """A watch that delivers these lines at once and ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            text = line if isinstance(line, str) else json.dumps(line)
            await response.write(text.encode() + b"\n")
        return response

    return answer


GONE = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "100"}}}
FAULTS: dict[str, tuple[str, Fault]] = {
    "410": ("watch", lambda _: status(410, "too old resource version")),
    "410 inside": ("watch", ending(GONE)),
    "504": ("watch", lambda _: status(504, "timeout")),
    "403": ("watch", lambda _: status(403, "forbidden")),
    "429": ("watch", lambda _: status(429, "busy")),
    "500": ("watch", lambda _: status(500, "broken")),
    "unreadable": ("watch", ending("no event")),
    "empty": ("watch", ending()),
    "a bookmark only": ("watch", ending(BOOKMARK)),
    "list 500": ("list", lambda _: status(500, "starting")),
    "list 410": ("list", lambda _: status(410, "the continue token is too old")),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_every_failure_waits(cluster: FakeApiServer, tmp_path: Path, name: str) -> None:
    """However often the API server fails in this way, each failure is followed by a pause."""
    verb, fault = FAULTS[name]
    for _ in range(ROUNDS):
        cluster.fail_next(verb, fault)
    backoff = CountingBackoff()
    async with following(cluster, tmp_path, backoff=backoff):
        await until("all failed", lambda: backoff.failures >= ROUNDS)
        await until("watching", lambda: cluster.watching("nodes"))
        assert backoff.failures == ROUNDS


async def test_a_watch_that_keeps_answering_410_does_not_list_in_a_tight_loop(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The pauses grow although every list between two watches succeeds."""
    pauses: list[float] = []

    class Recording(Backoff):
        def after_failure(self, *, lasted: float, retry_after: float = 0) -> float:
            pauses.append(super().after_failure(lasted=lasted, retry_after=retry_after))
            return 0

    for _ in range(8):
        cluster.fail_next("watch", lambda _: status(410, "too old resource version"))
    async with following(cluster, tmp_path, backoff=Recording()):
        await until("watching", lambda: cluster.watching("nodes"))
    assert cluster.lists("nodes") == 1 + 8
    assert len(pauses) == 8
    for number, pause in enumerate(pauses):
        step = min(30, 0.8 * 2**number)
        assert step / 2 <= pause <= step


async def test_watches_time_out_at_random(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Informers that started together do not return together."""
    monkeypatch.setattr(informer, "SHORT_SECONDS", 0.0)
    seconds: list[int] = []

    async def end(request: web.Request) -> web.StreamResponse:
        seconds.append(int(request.query["timeoutSeconds"]))
        return await ending(BOOKMARK)(request)

    for _ in range(ROUNDS):
        cluster.fail_next("watch", end)
    async with following(cluster, tmp_path):
        await until("watched", lambda: len(seconds) == ROUNDS)
    assert len(set(seconds)) > 1
    assert all(300 <= one <= 600 for one in seconds)


@pytest.mark.parametrize("in_pieces", [True, False])
async def test_a_first_list_in_pages_is_read_to_its_end(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_pieces: bool
) -> None:
    """A server without a watch cache heeds the limit; the next pages name no version."""
    monkeypatch.setitem(firstlist.FIRST_LIST, "limit", "2")
    cluster.watch_cache = False
    for number in range(5):
        await cluster.put("nodes", node(f"n{number}"))
    queries: list[dict[str, str]] = []
    for _ in range(2):
        cluster.fail_next("list", lambda request: queries.append(dict(request.query)))
    async with following(cluster, tmp_path, in_pieces=in_pieces) as (handler, _):
        assert len(handler.items) == 5
        assert handler.lists == (0 if in_pieces else 1)
    assert queries[0] == {"resourceVersion": "0", "limit": "2"}
    assert queries[1] == {"limit": "1000", "continue": "2"}


async def test_a_first_list_as_a_whole_is_handed_over_at_once(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """For handlers that go by the order of all objects."""
    await cluster.put("nodes", node("a"))
    async with following(cluster, tmp_path, in_pieces=False) as (handler, _):
        assert (handler.items, handler.lists, handler.calls) == ({"a"}, 1, [])
