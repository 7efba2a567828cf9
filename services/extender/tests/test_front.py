"""SchedulerRoutes are answered the same in front of the framework and within it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from admissioncalls import started, webhook
from certificates import make_certificate
from objects import node, pod
from running import Running

from gpuextender.http.app import TRACING
from gpukube.server.direct import DirectRoutes, HttpReply
from gpukube.testing.apiserver import FakeApiServer


async def answers(cluster: FakeApiServer, folder: Path) -> list[tuple[int, Any]]:
    """Status and body of every verb, good requests and bad ones."""
    async with Running(cluster, folder) as extender:
        await extender.ready()
        arguments = {"Pod": pod("p", 2, uid="u"), "Nodes": None, "NodeNames": ["n", "x"]}
        binding = {"PodName": "none", "PodNamespace": "default", "PodUID": "u", "Node": "n"}
        return [
            await extender.post(f"/gpushare-scheduler/{verb}", body)
            for verb in ("filter", "prioritize", "sort", "preempt", "bind")
            for body in (arguments, binding, b"{", b"")
        ]


@pytest.mark.slow
async def test_front_and_framework_say_the_same(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tracing on, requests go through the framework; no answer is another for that."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    quick = await answers(cluster, tmp_path)
    monkeypatch.setenv(TRACING, "true")
    assert await answers(cluster, tmp_path) == quick
    assert {status for status, _ in quick} == {200, 500}


@pytest.mark.slow
async def test_reviews_are_answered_the_same_in_front_of_the_framework_and_within_it(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good reviews, bad ones, and paths and methods that are none of the webhook's."""
    make_certificate(tmp_path / "certificates", "one")
    quick = await reviews(cluster, tmp_path)
    monkeypatch.setenv(TRACING, "true")
    assert await reviews(cluster, tmp_path) == quick
    assert [status for status, *_ in quick] == [200, 400, 405, 404]


async def reviews(cluster: FakeApiServer, folder: Path) -> list[tuple[int, str, str]]:
    """Status, type and body of each reply."""
    good = json.dumps({"request": {"uid": "r", "object": pod("p", 2)}})
    async with webhook(cluster, folder) as extender, aiohttp.ClientSession() as http:
        await started(extender)
        url = f"https://127.0.0.1:{extender.service.listeners.admission.port}"
        found = []
        for verb, path, body in (
            ("POST", "/admit?timeout=10s", good),
            ("POST", "/admit?timeout=10s", "{}"),
            ("GET", "/admit", ""),
            ("POST", "/admit-claims", good),
        ):
            async with http.request(verb, url + path, data=body, ssl=False) as reply:
                found.append((reply.status, reply.content_type, await reply.text()))
        return found


async def responses(
    front: DirectRoutes, scope: dict[str, Any], *messages: dict[str, Any]
) -> list[Any]:
    """What is sent for a request that comes in these messages."""
    sent: list[Any] = []
    coming = iter(messages)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        return next(coming)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await front(scope, receive, send)
    return sent


async def echo(body: bytes) -> HttpReply:
    """The length of what came."""
    return HttpReply(json.dumps(len(body)).encode())


async def behind(scope: Any, receive: Any, send: Any) -> None:
    """Reports that it was called."""
    await send({"behind": scope["path"]})


VERB = {"type": "http", "method": "POST", "path": "/v"}


async def test_a_body_comes_in_parts() -> None:
    """Thousands of names are more than one read."""
    part = {"type": "http.request", "body": b"12", "more_body": True}
    sent = await responses(
        DirectRoutes({"/v": echo}, behind), VERB, part, part, {"type": "http.request"}
    )
    assert sent[1]["body"] == b"4"
    assert (b"content-length", b"1") in sent[0]["headers"]


async def test_nobody_is_answered_who_is_gone() -> None:
    """A scheduler that gave up does not have its question decided."""
    gone = {"type": "http.disconnect"}
    assert await responses(DirectRoutes({"/v": echo}, behind), VERB, gone) == []


@pytest.mark.parametrize(
    "scope", [VERB | {"method": "GET"}, VERB | {"path": "/v/"}, {"type": "lifespan", "path": "x"}]
)
async def test_all_else_is_the_frameworks(scope: dict[str, Any]) -> None:
    """Other methods, other paths, and what is no request."""
    assert await responses(DirectRoutes({"/v": echo}, behind), scope) == [{"behind": scope["path"]}]
