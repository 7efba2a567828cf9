"""What a scheduler and kubelet notice of an attack: filter's 99th percentile, and probes.

``ATTACK_SECONDS=120`` measures for as long as the figure in docs/benchmarks-extender.md was.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from objects import node, pod
from test_attacks import FILTER, Attacked, asked, attacked

from gpukube.testing.apiserver import FakeApiServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = float(os.environ.get("ATTACK_SECONDS", "12"))
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 10)]
HALF_OPEN = 2000
HALF_HTTP = b"GET /metrics HTTP/1.1\r\nHost: "
HALF_TLS = b"\x16\x03\x01"
NODES = 200
PAUSE = 0.01
MOST = 2.0
"""Times the quiet percentile."""
SETTLED = 3.0


@asynccontextmanager
async def attack(port: int, half: bytes) -> AsyncIterator[None]:
    """2,000 half-open clients and 8 that scrape, of 8 addresses, at one port."""
    each = (str(HALF_OPEN // len(ADDRESSES)), "1", half.hex(), str(port))
    script = str(Path(__file__).with_name("attackers.py"))
    clients = [
        subprocess.Popen([sys.executable, script, address, *each], stdin=subprocess.PIPE)
        for address in ADDRESSES
    ]
    try:
        yield
    finally:
        for client in clients:
            client.kill()
            client.wait()
            client.stdin.close()


async def percentile(extender: Attacked, seconds: float) -> float:
    """The 99th percentile of filter over a kept connection, in milliseconds."""
    names = [f"n{number}" for number in range(NODES)]
    body = {"Pod": pod("p", 2), "Nodes": None, "NodeNames": names}
    took = []
    async with aiohttp.ClientSession() as http:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            async with http.post(extender.verbs + FILTER, json=body) as reply:
                assert len((await reply.json())["NodeNames"]) == NODES
            took.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(PAUSE)
    return statistics.quantiles(took, n=100)[98]


async def probe(extender: Attacked) -> list[int]:
    """Ask as kubelet does, for ever; what was answered."""
    statuses: list[int] = []
    try:
        while True:
            statuses.append(await asked(f"{extender.metrics}/healthz"))
            statuses.append(await asked(f"{extender.metrics}/readyz"))
            await asyncio.sleep(0.5)
    except asyncio.CancelledError:
        return statuses


async def test_an_attack_on_every_open_port_delays_nobody(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Half-open clients, which come back, and scrapers: filter stays quick, and probes pass."""
    for number in range(NODES):
        await cluster.put("nodes", node(f"n{number}", 80, 80, unit="GiB"))
    async with attacked(cluster, tmp_path) as extender, AsyncExitStack() as stack:
        await percentile(extender, 2)
        quiet = await percentile(extender, SECONDS)
        for url, half in ((extender.metrics, HALF_HTTP), (extender.webhook, HALF_TLS)):
            port = int(url.rpartition(":")[2])
            await stack.enter_async_context(attack(port, half))
        await asyncio.sleep(SETTLED)
        probing = asyncio.create_task(probe(extender))
        attacked_one = await percentile(extender, SECONDS)
        probing.cancel()
        statuses = await probing
    print(f"p99 quiet {quiet:.2f} ms, attacked {attacked_one:.2f} ms, probes {len(statuses)}")
    assert set(statuses) == {200}
    assert attacked_one < MOST * quiet
