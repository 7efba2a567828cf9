"""How many pods a second the bind verb gives their cards, over 1, 8 and 32 connections."""

import asyncio
import json
import time
from collections.abc import Iterator

import aiohttp
import msgspec

from bench.subject import Subject
from environments import fakenodes
from environments.apicall import ApiCalls

PATH = f"/api/v1/namespaces/{fakenodes.NAMESPACE}/pods"


async def measure(
    subject: Subject, calls: ApiCalls, *, connections: int, pods: int, nodes: int
) -> float:
    """Binds a second; every one of them must succeed."""
    batch = f"bind-{subject.name.replace(':', '-').replace('.', '-')}-{connections}"
    names = [f"{batch}-{time.monotonic_ns()}-{i}" for i in range(pods)]
    await calls.create(PATH, (fakenodes.pod(name, 1, scheduler="none") for name in names))
    arguments = [await _arguments(calls, name, i * 7919 % nodes) for i, name in enumerate(names)]
    pending = iter(arguments)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector) as session:
        begin = time.perf_counter()
        workers = (_bind(session, f"{subject.url}/bind", pending) for _ in range(connections))
        await asyncio.gather(*workers)
        return pods / (time.perf_counter() - begin)


async def _arguments(calls: ApiCalls, name: str, node: int) -> bytes:
    meta = msgspec.json.decode(await calls.call("GET", f"{PATH}/{name}"))["metadata"]
    arguments = {
        "PodName": name,
        "PodNamespace": meta["namespace"],
        "PodUID": meta["uid"],
        "Node": f"node-{node:05}",
    }
    return json.dumps(arguments).encode()


async def _bind(session: aiohttp.ClientSession, url: str, pending: Iterator[bytes]) -> None:
    for body in pending:
        async with session.post(url, data=body) as answer:
            content = await answer.read()
            assert answer.status == 200, content
