"""The reflector: nothing is missed over lost connections, old versions, floods and silence."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from fakeanswers import status
from fakeapi import FakeApiServer
from objects import node
from running import WAIT_SECONDS, until

from gpucore.wire.lists import decode_node_event, decode_nodes
from gpucore.wire.nodes import Node
from gpuextender import reflector as reflector_module
from gpuextender.backoff import Backoff
from gpuextender.kube import KubeApi
from gpuextender.reflector import Collection, Reflector

NODES = Collection("nodes", "/api/v1/nodes", decode_nodes, decode_node_event)


class FakeSink:
    """Keeps what it is told, and how."""

    def __init__(self) -> None:
        self.items: set[str] = set()
        self.lists = 0
        self.calls: list[tuple[str, str]] = []

    def replace(self, items: Iterable[Node]) -> None:
        self.items = {item.name for item in items}
        self.lists += 1

    def changed(self, item: Node) -> None:
        self.items.add(item.name)
        self.calls.append(("changed", item.name))

    def gone(self, item: Node) -> None:
        self.items.discard(item.name)
        self.calls.append(("gone", item.name))


@asynccontextmanager
async def following(
    cluster: FakeApiServer, folder: Path, *, silence: float = 60
) -> AsyncIterator[tuple[FakeSink, Reflector[Node]]]:
    """A synced reflector with short waits."""
    path = folder / "kubeconfig"
    path.write_text(cluster.kubeconfig())
    async with await KubeApi.connect(path) as api:
        sink = FakeSink()
        backoff = Backoff(first=0.01, last=0.02, source=random.Random(1))
        one = Reflector(api, NODES, sink, silence=silence, backoff=backoff)
        task = asyncio.create_task(one.run())
        try:
            await asyncio.wait_for(one.synced.wait(), WAIT_SECONDS)
            yield sink, one
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_it_lists_then_follows(cluster: FakeApiServer, tmp_path: Path) -> None:
    """What was there is listed once; what happens later comes as events."""
    await cluster.put("nodes", node("a"))
    async with following(cluster, tmp_path) as (sink, _):
        assert sink.items == {"a"}
        await cluster.put("nodes", node("b"))
        await cluster.delete("nodes", "a")
        await until("events", lambda: sink.items == {"b"})
        assert cluster.lists("nodes") == 1
        assert sink.calls == [("changed", "a"), ("changed", "b"), ("gone", "a")]


async def test_the_first_list_comes_from_memory_and_later_ones_are_consistent(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Only a process that knows nothing yet takes what the API server remembers."""
    asked: list[dict[str, str]] = []
    for _ in range(2):
        cluster.fail_next("list", lambda request: asked.append(dict(request.query)))
    async with following(cluster, tmp_path) as (sink, _):
        await until("watching", lambda: cluster.watching("nodes"))
        async with cluster.silent_watches():
            await cluster.put("nodes", node("a"))
            cluster.compact()
            cluster.drop_watches()
        await until("listed again", lambda: sink.lists == 1)
    assert asked == [{"resourceVersion": "0"}, {"limit": "1000"}]


async def test_a_later_list_comes_in_pages_and_arrives_whole(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are joined before anything is handed over."""
    monkeypatch.setattr(reflector_module, "PAGE", 2)
    for i in range(5):
        await cluster.put("nodes", node(f"n{i}"))
    cluster.fail_next("list", lambda _: status(500, "starting"))
    async with following(cluster, tmp_path) as (sink, _):
        assert len(sink.items) == 5
        assert sink.calls == []
        assert cluster.lists("nodes") == 1 + 3


async def test_a_first_list_that_breaks_off_leaves_nothing_stale(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first pieces told is corrected by the whole list that follows."""
    monkeypatch.setattr(reflector_module, "PIECE", 1)
    await cluster.put("nodes", node("b"))
    broken = {"metadata": {"resourceVersion": "1"}, "items": [node("a"), {"metadata": 7}]}
    cluster.fail_next("list", lambda _: web.json_response(broken))
    async with following(cluster, tmp_path) as (sink, _):
        assert sink.calls == [("changed", "a")]
        assert sink.items == {"b"}
        assert sink.lists == 1


async def test_a_lost_connection_resumes_without_a_list(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """What happened while the watch was down comes with the next one."""
    async with following(cluster, tmp_path) as (sink, _):
        await until("watching", lambda: cluster.watching("nodes"))
        cluster.drop_watches()
        await cluster.put("nodes", node("a"))
        await until("resumed", lambda: sink.items == {"a"})
        assert cluster.lists("nodes") == 1


async def test_bookmarks_carry_the_version_over_compaction(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A bookmark moves a quiet watch on, so that a later resume is not too old."""
    async with following(cluster, tmp_path) as (sink, one):
        await cluster.put("pods", {"metadata": {"name": "busy", "uid": "u"}})
        version = cluster.version
        await until("bookmark", lambda: one.version == version)
        cluster.compact()
        cluster.drop_watches()
        await cluster.put("nodes", node("a"))
        await until("resumed", lambda: sink.items == {"a"})
        assert cluster.lists("nodes") == 1


async def test_410_lists_again_and_finds_what_was_deleted_meanwhile(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The deletion that no event will ever tell is seen by its absence."""
    for name in ("a", "b"):
        await cluster.put("nodes", node(name))
    async with following(cluster, tmp_path) as (sink, _):
        await until("watching", lambda: cluster.watching("nodes"))
        async with cluster.silent_watches():
            await cluster.delete("nodes", "a")
            cluster.compact()
            cluster.drop_watches()
        await until("the deletion is known", lambda: sink.items == {"b"})
        assert cluster.lists("nodes") == 2
        assert ("gone", "a") not in sink.calls


async def test_410_inside_the_stream_lists_again(cluster: FakeApiServer, tmp_path: Path) -> None:
    """An ERROR event of code 410 means the same as a 410 answer."""

    async def expire(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "old"}}
        await response.write(json.dumps(error).encode() + b"\n")
        return response

    cluster.fail_next("watch", expire)
    async with following(cluster, tmp_path) as (sink, _):
        await until("listed again", lambda: sink.lists == 1)


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_busy_server_is_waited_for_without_a_list(
    cluster: FakeApiServer, tmp_path: Path, code: int
) -> None:
    """429 and 5xx to a watch are no reason to read everything again."""
    cluster.fail_next("watch", lambda _: status(code, "busy"))
    async with following(cluster, tmp_path) as (sink, _):
        await cluster.put("nodes", node("a"))
        await until("followed", lambda: sink.items == {"a"})
        assert cluster.lists("nodes") == 1


async def test_a_failing_first_list_is_tried_again(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Not synced until a whole list came."""
    await cluster.put("nodes", node("a"))
    for _ in range(3):
        cluster.fail_next("list", lambda _: status(500, "starting"))
    async with following(cluster, tmp_path) as (sink, _):
        assert sink.items == {"a"}
        assert cluster.count("GET", "/nodes") >= 4


async def test_a_line_that_cannot_be_read_lists_again(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A broken stream is not trusted any further."""

    async def babble(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type": "ADDED", "object": {"metadata": 7}}\n')
        return response

    cluster.fail_next("watch", babble)
    async with following(cluster, tmp_path) as (sink, _):
        await until("listed again", lambda: sink.lists == 1)


async def test_a_silent_connection_is_given_up(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A black hole is noticed by its silence, and the next watch brings what was missed."""
    release = asyncio.Event()

    async def black_hole(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await release.wait()
        return response

    cluster.fail_next("watch", black_hole)
    async with following(cluster, tmp_path, silence=0.2) as (sink, _):
        await cluster.put("nodes", node("a"))
        await until("noticed", lambda: sink.items == {"a"})
        assert cluster.lists("nodes") == 1
        release.set()


async def test_a_watch_that_ends_at_once_is_not_asked_in_a_tight_loop(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """An empty clean end within a second waits like a failure."""

    async def end(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        return response

    for _ in range(4):
        cluster.fail_next("watch", end)
    began = asyncio.get_running_loop().time()
    async with following(cluster, tmp_path) as (sink, _):
        await cluster.put("nodes", node("a"))
        await until("followed", lambda: sink.items == {"a"})
        assert asyncio.get_running_loop().time() - began >= 4 * 0.005


async def test_age_says_how_long_ago_the_server_was_heard(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Infinite before the first list, small while events come."""
    path = tmp_path / "kubeconfig"
    path.write_text(cluster.kubeconfig())
    async with await KubeApi.connect(path) as api:
        assert Reflector(api, NODES, FakeSink(), silence=1).age == float("inf")
    async with following(cluster, tmp_path) as (_, one):
        assert one.age < WAIT_SECONDS


def test_waits_grow_with_jitter_and_start_over_after_health() -> None:
    """Doubling from the first step to the last, between half and all of it."""
    backoff = Backoff(first=1, last=8, healthy=60, source=random.Random(7))
    waits = [backoff.after_failure(lasted=0) for _ in range(6)]
    for wait, step in zip(waits, (1, 2, 4, 8, 8, 8), strict=True):
        assert step / 2 <= wait <= step
    assert backoff.after_failure(lasted=61) <= 1
    assert backoff.after_failure(lasted=0, asked=30) == 30
