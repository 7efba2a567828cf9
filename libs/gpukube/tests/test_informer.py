"""The informer: nothing is missed over lost connections, old versions, floods and silence."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from following import following
from kubeobjects import node

from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.waiting import until
from gpukube.watch import lister


async def test_it_lists_then_follows(cluster: FakeApiServer, tmp_path: Path) -> None:
    """What was there is listed once; what happens later comes as events."""
    await cluster.put("nodes", node("a"))
    async with following(cluster, tmp_path) as (handler, _):
        assert handler.items == {"a"}
        await cluster.put("nodes", node("b"))
        await cluster.delete("nodes", "a")
        await until("events", lambda: handler.items == {"b"})
        assert cluster.lists("nodes") == 1
        assert handler.calls == [("changed", "a"), ("changed", "b"), ("gone", "a")]


async def test_the_first_list_comes_from_memory_and_later_ones_are_consistent(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Only a process without any list accepts one from the API server's cache."""
    requested: list[dict[str, str]] = []
    for _ in range(2):
        cluster.fail_next("list", lambda request: requested.append(dict(request.query)))
    async with following(cluster, tmp_path) as (handler, _):
        await until("watching", lambda: cluster.watching("nodes"))
        async with cluster.silent_watches():
            await cluster.put("nodes", node("a"))
            cluster.compact()
            cluster.drop_watches()
        await until("listed again", lambda: handler.lists == 1)
    assert requested == [{"resourceVersion": "0", "limit": "1000"}, {"limit": "1000"}]


async def test_a_later_list_comes_in_pages_and_arrives_whole(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages are joined before anything is handed over."""
    monkeypatch.setattr(lister, "PAGE", 2)
    for i in range(5):
        await cluster.put("nodes", node(f"n{i}"))
    cluster.fail_next("list", lambda _: status(500, "starting"))
    async with following(cluster, tmp_path) as (handler, _):
        assert len(handler.items) == 5
        assert handler.calls == []
        assert cluster.lists("nodes") == 1 + 3


async def test_a_first_list_that_breaks_off_leaves_nothing_stale(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first pieces reported is corrected by the whole list that follows."""
    monkeypatch.setattr(lister, "PIECE_BYTES", 1)
    await cluster.put("nodes", node("b"))
    items = [node("a"), {"metadata": {"name": 7}}]
    broken = json.dumps({"metadata": {}, "items": items}, separators=(",", ":"))
    cluster.fail_next("list", lambda _: web.json_response(text=broken))
    async with following(cluster, tmp_path) as (handler, _):
        assert handler.calls == [("changed", "a")]
        assert handler.items == {"b"}
        assert handler.lists == 1


async def test_a_lost_connection_resumes_without_a_list(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """What happened while the watch was down comes with the next one."""
    async with following(cluster, tmp_path) as (handler, _):
        await until("watching", lambda: cluster.watching("nodes"))
        cluster.drop_watches()
        await cluster.put("nodes", node("a"))
        await until("resumed", lambda: handler.items == {"a"})
        assert cluster.lists("nodes") == 1


async def test_bookmarks_carry_the_version_over_compaction(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A bookmark moves a quiet watch on, so that a later resume is not too old."""
    async with following(cluster, tmp_path) as (handler, one):
        await cluster.put("pods", {"metadata": {"name": "busy", "uid": "u"}})
        version = cluster.version
        await until("bookmark", lambda: one.version == version)
        cluster.compact()
        cluster.drop_watches()
        await cluster.put("nodes", node("a"))
        await until("resumed", lambda: handler.items == {"a"})
        assert cluster.lists("nodes") == 1


async def test_410_lists_again_and_finds_what_was_deleted_meanwhile(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """An object missing from a new list counts as deleted, though no event came."""
    for name in ("a", "b"):
        await cluster.put("nodes", node(name))
    async with following(cluster, tmp_path) as (handler, _):
        await until("watching", lambda: cluster.watching("nodes"))
        async with cluster.silent_watches():
            await cluster.delete("nodes", "a")
            cluster.compact()
            cluster.drop_watches()
        await until("the deletion is known", lambda: handler.items == {"b"})
        assert cluster.lists("nodes") == 2
        assert ("gone", "a") not in handler.calls


async def test_410_inside_the_stream_lists_again(cluster: FakeApiServer, tmp_path: Path) -> None:
    """An ERROR event of code 410 means the same as a 410 answer."""

    async def expire(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "old"}}
        await response.write(json.dumps(error).encode() + b"\n")
        return response

    cluster.fail_next("watch", expire)
    async with following(cluster, tmp_path) as (handler, _):
        await until("listed again", lambda: handler.lists == 1)


async def test_a_failing_first_list_is_tried_again(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Not synced until a whole list came."""
    await cluster.put("nodes", node("a"))
    for _ in range(3):
        cluster.fail_next("list", lambda _: status(500, "starting"))
    async with following(cluster, tmp_path) as (handler, _):
        assert handler.items == {"a"}
        assert cluster.count("GET", "/nodes") >= 4


async def test_a_silent_connection_is_given_up(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A black hole is noticed by its silence; a list follows, as the server may have lost data."""
    release = asyncio.Event()

    async def black_hole(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await release.wait()
        return response

    cluster.fail_next("watch", black_hole)
    async with following(cluster, tmp_path, silence=0.2) as (handler, _):
        await cluster.put("nodes", node("a"))
        await until("noticed", lambda: handler.items == {"a"})
        assert cluster.lists("nodes") == 2
        release.set()
