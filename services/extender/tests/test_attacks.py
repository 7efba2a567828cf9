"""Clients that hold connections, or send more than any request has: verbs and probes go on.

The extender runs as a process with as few file descriptors as many container runtimes give.
"""

import asyncio
import io
import json
import os
import resource
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from certificates import make_certificate
from objects import node, pod
from running import WAIT_SECONDS

from environments.processes import free_port
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.processes import kill_and_reap, limited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FILES = 1024
HALF_OPEN = 1100
BODY = 100 << 20
STORED = 3 << 19
"""Most bytes of an object in etcd."""
FILTER = "/gpushare-scheduler/filter"


class Attacked(NamedTuple):
    """A running extender."""

    process: Process
    verbs: str
    metrics: str
    webhook: str

    def memory(self) -> int:
        """Most bytes of memory that it ever used."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        return int(peak) * 1024

    def processor_seconds(self) -> float:
        """Time that its threads were computing so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> int:
        """Number of its open files, connections among them."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@asynccontextmanager
async def attacked(cluster: FakeApiServer, folder: Path) -> AsyncIterator[Attacked]:
    """A ready extender with every port that it can have."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    (folder / "kubeconfig").write_text(cluster.kubeconfig())
    make_certificate(folder / "webhook", "webhook")
    verbs, metrics, webhook = (free_port() for _ in range(3))
    process = await asyncio.create_subprocess_exec(
        *limited(FILES, sys.executable, "-m", "gpuextender"),
        *("--host=127.0.0.1", f"--port={verbs}"),
        *("--metrics-host=127.0.0.1", f"--metrics-port={metrics}"),
        *(f"--webhook-port={webhook}", f"--webhook-certificates={folder / 'webhook'}"),
        env={**os.environ, "KUBECONFIG": str(folder / "kubeconfig")},
    )
    urls = (f"{scheme}://127.0.0.1:{port}" for scheme, port in (("http", verbs), ("http", metrics)))
    extender = Attacked(process, *urls, f"https://127.0.0.1:{webhook}")
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while await status_of(f"{extender.metrics}/readyz") != 200:
                assert process.returncode is None
                await asyncio.sleep(0.02)
        yield extender
    finally:
        await kill_and_reap(process)


async def status_of(url: str, body: object = None) -> int:
    """Status of a request over a new connection; 0 where there was no answer."""
    timeout = aiohttp.ClientTimeout(total=WAIT_SECONDS)
    method = "GET" if body is None else "POST"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.request(method, url, json=body, ssl=False) as reply,
        ):
            await reply.read()
            return reply.status
    except (aiohttp.ClientError, TimeoutError, OSError):
        return 0


@contextmanager
def half_open(url: str, count: int) -> Iterator[None]:
    """Clients that have sent half a request each, or half a TLS handshake, and wait."""
    scheme, _, place = url.partition("://")
    host, port = place.split(":")
    tls = scheme == "https"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * count)), hard))
    sockets = []
    try:
        for _ in range(count):
            sockets.append(socket.create_connection((host, int(port)), 10))
            sockets[-1].sendall(b"\x16\x03\x01" if tls else b"GET /metrics HTTP/1.1\r\nHost: ")
        yield
    finally:
        for one in sockets:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("target", ["metrics", "webhook", "verbs"])
async def test_half_open_requests_stop_neither_verbs_nor_probes(
    cluster: FakeApiServer, tmp_path: Path, target: str
) -> None:
    """More half requests than the process may have files: each new client is answered."""
    body = {"Pod": pod("p", 2), "Nodes": None, "NodeNames": ["n"]}
    async with attacked(cluster, tmp_path) as extender:
        attacking = half_open(getattr(extender, target), HALF_OPEN)
        await asyncio.to_thread(attacking.__enter__)
        try:
            for _ in range(5):
                assert await status_of(f"{extender.metrics}/healthz") == 200
                assert await status_of(f"{extender.metrics}/readyz") == 200
                assert await status_of(f"{extender.verbs}{FILTER}", body) == 200
                assert await status_of(f"{extender.webhook}/admit", {}) == 400
        finally:
            attacking.__exit__(None, None, None)


async def parts(count: int) -> AsyncIterator[bytes]:
    """A body without a length."""
    for _ in range(count):
        yield bytes(1 << 20)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_review_that_is_too_large_costs_no_memory(
    cluster: FakeApiServer, tmp_path: Path, announced: bool
) -> None:
    """It is refused before it is read, or once more has come than a review can have."""
    async with attacked(cluster, tmp_path) as extender:
        before = extender.memory()
        async with aiohttp.ClientSession() as http:
            data = io.BytesIO(bytes(BODY)) if announced else parts(BODY >> 20)
            try:
                async with http.post(f"{extender.webhook}/admit", data=data, ssl=False) as reply:
                    assert reply.status == 413
            except (aiohttp.ClientError, ConnectionError):
                pass  # the connection is closed while the client still sends
        assert extender.memory() - before < 40 << 20
        assert await status_of(f"{extender.webhook}/admit", {}) == 400


async def test_no_text_makes_a_review_too_large(cluster: FakeApiServer, tmp_path: Path) -> None:
    """The API server writes `<` as six bytes, so that a review has up to twelve times an object."""
    debugged = pod("p", 2)
    debugged["spec"]["containers"][0]["args"] = ["<" * STORED]
    debugger = {"name": "d", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    spec = debugged["spec"] | {"ephemeralContainers": [debugger]}
    request = {"uid": "u", "namespace": "default", "subResource": "ephemeralcontainers"}
    objects = {"object": debugged | {"spec": spec}, "oldObject": debugged}
    text = json.dumps({"request": request | objects}).replace("<", r"\u003c")
    async with (
        attacked(cluster, tmp_path) as extender,
        aiohttp.ClientSession() as http,
        http.post(f"{extender.webhook}/admit", data=io.BytesIO(text.encode()), ssl=False) as reply,
    ):
        assert reply.status == 200
        assert not (await reply.json())["response"]["allowed"]


async def test_scrapers_share_one_pace(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Clients that scrape in a loop wait for the next text, which is made once a second."""
    async with attacked(cluster, tmp_path) as extender:

        async def scrape() -> None:
            for _ in range(3):
                assert await status_of(f"{extender.metrics}/metrics") == 200

        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(scrape() for _ in range(8)))
        assert asyncio.get_running_loop().time() - began > 1.9
