"""The informer and an API server whose history went back, as after an etcd restore."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from following import NODES, UNCHECKED, following
from kubeobjects import node

from gpukube.testing.answers import status_of, too_large
from gpukube.testing.apiserver import FakeApiServer, Snapshot
from gpukube.testing.waiting import until
from gpukube.watch import informer

pytestmark = pytest.mark.slow

Line = Callable[[], dict[str, Any]]


async def backed_up(cluster: FakeApiServer) -> Snapshot:
    """A cluster with the nodes b and c, and a backup of the time when it had a and b."""
    await cluster.put("nodes", node("a"))
    await cluster.put("nodes", node("b"))
    backup = cluster.snapshot()
    await cluster.delete("nodes", "a")
    await cluster.put("nodes", node("c"))
    return backup


@pytest.mark.parametrize("rejecting", [True, False], ids=["504", "silence"])
async def test_a_restore_is_noticed_at_the_next_connection(
    cluster: FakeApiServer, tmp_path: Path, *, rejecting: bool
) -> None:
    """Whether the server would refuse the watch or keep it in silence: one list, no ghosts."""
    backup = await backed_up(cluster)
    cluster.reject_future_watches = rejecting
    async with following(cluster, tmp_path) as (handler, one):
        await until("watching", lambda: cluster.watching("nodes"))
        assert handler.items == {"b", "c"}
        cluster.restore(backup)
        await until("listed again", lambda: handler.items == {"a", "b"})
        assert one.version == str(backup[0])
        assert cluster.lists("nodes") == 2
        await cluster.put("nodes", node("d"))
        await until("following", lambda: handler.items == {"a", "b", "d"})


async def test_a_restored_server_is_not_trusted_until_it_was_listed(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """From the moment that the version went back until the list, the age is infinite."""
    backup, release = await backed_up(cluster), asyncio.Event()
    async with following(cluster, tmp_path) as (handler, one):
        await until("watching", lambda: cluster.watching("nodes"))
        cluster.fail_next("list", lambda _: release.wait())
        cluster.restore(backup)
        await until("noticed", lambda: one.age == float("inf"))
        assert not one.confirmed
        assert handler.items == {"b", "c"}
        release.set()
        await until("listed", lambda: one.confirmed)
        assert handler.items == {"a", "b"}
        assert one.age < float("inf")


async def test_a_lost_connection_alone_needs_no_list(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Unconfirmed while the server is away; its version then shows that nothing was lost."""
    await cluster.put("nodes", node("a"))
    async with following(cluster, tmp_path) as (handler, one):
        await until("watching", lambda: cluster.watching("nodes"))
        assert one.confirmed
        cluster.refuse = True
        cluster.drop_watches()
        await until("unconfirmed", lambda: not one.confirmed)
        assert one.age < float("inf")
        cluster.refuse = False
        await until("confirmed", lambda: one.confirmed and cluster.watching("nodes"))
        await cluster.put("nodes", node("b"))
        await until("following", lambda: handler.items == {"a", "b"})
        assert cluster.lists("nodes") == 1


async def test_a_long_absence_is_followed_by_a_list(cluster: FakeApiServer, tmp_path: Path) -> None:
    """The restored server has passed the old version before anybody could look."""
    backup = await backed_up(cluster)
    async with following(cluster, tmp_path, relist_after=0.1) as (handler, one):
        await until("watching", lambda: cluster.watching("nodes"))
        reached, probes = int(one.version), cluster.calls["GET", "/api/v1/nodes"]
        cluster.refuse = True
        cluster.restore(backup)
        await until("away", lambda: cluster.calls["GET", "/api/v1/nodes"] > probes + 20)
        while int(cluster.version) <= reached:
            await cluster.put("nodes", node("d"))
        cluster.refuse = False
        await until("listed again", lambda: handler.items == {"a", "b", "d"})
        assert one.confirmed


async def test_a_version_that_is_too_large_lists_again(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A server that answers a watch with 504 has another history."""
    backup = await backed_up(cluster)
    cluster.reject_future_watches = True
    async with following(cluster, tmp_path, collection=UNCHECKED) as (handler, _):
        await until("watching", lambda: cluster.watching("nodes"))
        cluster.restore(backup)
        await until("listed again", lambda: handler.items == {"a", "b"})
        assert cluster.lists("nodes") == 2


ERRORS: dict[str, Line] = {
    "504": lambda: status_of(504, "timeout"),
    "too large": lambda: too_large(200, 100),
    "too large with another code": lambda: too_large(200, 100) | {"code": 500},
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_an_error_inside_the_watch_that_means_a_restore_lists_again(
    cluster: FakeApiServer, tmp_path: Path, error: Line
) -> None:
    """By its code or by its cause."""
    cluster.fail_next("watch", sending("ERROR", error()))
    async with following(cluster, tmp_path, collection=UNCHECKED) as (handler, _):
        await until("listed again", lambda: handler.lists == 1)


@pytest.mark.parametrize("kind", ["BOOKMARK", "MODIFIED", "DELETED"])
async def test_an_older_version_inside_the_watch_lists_again(
    cluster: FakeApiServer, tmp_path: Path, kind: str
) -> None:
    """A bookmark or event from before what was seen cannot belong to the same history."""
    await backed_up(cluster)
    item = node("ghost")
    item["metadata"]["resourceVersion"] = "7"
    cluster.fail_next("watch", sending(kind, item))
    async with following(cluster, tmp_path) as (handler, _):
        await until("listed again", lambda: handler.lists == 1)
        assert handler.items == {"b", "c"}
        assert handler.calls == [("changed", "b"), ("changed", "c")]


async def test_a_watch_that_is_silent_for_its_time_out_lists_again(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends it cleanly at its time, and not even a bookmark came."""
    monkeypatch.setattr(informer, "WATCH_SECONDS", (0, 0))
    monkeypatch.setattr(informer, "SHORT_SECONDS", 0.0)
    cluster.fail_next("watch", sending())
    async with following(cluster, tmp_path) as (handler, _):
        await until("listed again", lambda: handler.lists == 1)


async def test_a_restored_server_that_stays_silent_is_noticed(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Even where the version cannot be checked and the watch waits for the lost one."""
    backup = await backed_up(cluster)
    async with following(cluster, tmp_path, silence=0.2, collection=UNCHECKED) as (handler, _):
        await until("watching", lambda: cluster.watching("nodes"))
        cluster.restore(backup)
        await until("listed again", lambda: handler.items == {"a", "b"})


async def test_the_check_of_the_version_reads_one_key(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """It is a consistent read of a name that no object needs to have."""
    queries: list[dict[str, str]] = []
    cluster.fail_next("probe", lambda request: queries.append(dict(request.query)))
    async with following(cluster, tmp_path) as (_, one):
        await until("watching", lambda: cluster.watching("nodes"))
        cluster.drop_watches()
        await until("checked", lambda: queries and one.confirmed)
    assert queries == [{"fieldSelector": f"metadata.name={NODES.version_name}"}]


def sending(
    *event: Any,
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A watch of at most one event, a type and an object, which then ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if event:
            kind, item = event
            await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
        return response

    return answer
