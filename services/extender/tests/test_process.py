"""The command as an operator runs it: its settings, its signals, its exit codes, its logs."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from objects import node, pod
from pydantic_settings import CliApp
from running import WAIT_SECONDS, Running, until

from gpuextender.settings import ExtenderSettings
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.processes import kill_and_reap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

START_SECONDS = 120
"""Most of a second of computing, of which a loaded machine may make a minute."""


@asynccontextmanager
async def command(*arguments: str, **env: str) -> AsyncIterator[Process]:
    """The console script as a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gpuextender",
        *arguments,
        env={**os.environ, **env},
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        await kill_and_reap(process)


async def answers(url: str) -> int:
    """Status, or 0 where nobody listens."""
    try:
        async with aiohttp.ClientSession() as http, http.get(url) as reply:
            return reply.status
    except aiohttp.ClientError:
        return 0


async def where(process: Process) -> tuple[str, list[bytes]]:
    """The URL that the process reports it listens on, and its lines until then."""
    assert process.stderr is not None
    lines = []
    async with asyncio.timeout(START_SECONDS):
        async for line in process.stderr:
            lines.append(line)
            if found := re.search(rb" running on (http://[0-9.:]+)", line):
                return found[1].decode(), lines
    raise AssertionError(b"".join(lines).decode())


async def until_ready(url: str) -> None:
    """Wait until the process is ready."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await answers(f"{url}/readyz") != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def test_sigterm_finishes_what_is_in_flight_and_exits_zero(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Unready at once, the running bind is answered, then exit code 0."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    item = await cluster.put("pods", pod("p", 2))
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--host", "127.0.0.1")
    release, arrived = asyncio.Event(), asyncio.Event()

    async def slow(request: object) -> object:
        arrived.set()
        await release.wait()
        return await cluster.apply_binding(request)

    cluster.fail_next("bind", slow)
    flags = ("--port", "0", "--drain-seconds", "1", "--bind-deadline", str(WAIT_SECONDS))
    async with command(*arguments, *flags, LOG_LEVEL="info") as process:
        url, before = await where(process)
        await until_ready(url)
        metadata = item["metadata"]
        body = {
            "PodName": "p",
            "PodNamespace": "default",
            "PodUID": metadata["uid"],
            "Node": "n",
        }
        async with aiohttp.ClientSession() as http:
            bind = http.post(f"{url}/gpushare-scheduler/bind", json=body)
            bound = asyncio.ensure_future(bind)
            await asyncio.wait_for(arrived.wait(), WAIT_SECONDS)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WAIT_SECONDS):
                while await answers(f"{url}/readyz") == 200:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.01)
            release.set()
            reply = await bound
            assert (reply.status, await reply.json()) == (200, {"Error": ""})
        _, after = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert process.returncode == 0
    lines = [json.loads(line) for line in (*before, *after.splitlines())]
    [placed] = [line for line in lines if line["event"] == "bound"]
    assert (placed["pod"], placed["node"]) == ("default/p", "n")


async def test_while_it_drains_it_still_decides(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Requests come until everyone knows that it is going."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    async with Running(cluster, tmp_path, drain_seconds=3600) as extender:
        await extender.ready()
        extender.service.stop()
        assert (await extender.get("/readyz"))[0] == 503
        assert (await extender.filter(pod("p", 2), "n"))["NodeNames"] == ["n"]
        extender.service.listeners.close()  # as at the end of the hour


async def test_without_an_api_server_it_reports_that_and_exits_two(tmp_path: Path) -> None:
    """Neither a kubeconfig nor a service account: one sentence, no stack trace."""
    async with command("--kubeconfig", str(tmp_path / "none")) as process:
        _, stderr = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert process.returncode == 2
    assert "no API server" in stderr.decode()
    assert "Traceback" not in stderr.decode()


async def test_settings_that_make_no_sense_exit_two() -> None:
    """The setting is named."""
    async with command("--log-level", "loud") as process:
        _, stderr = await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert process.returncode == 2
    assert "log_level" in stderr.decode()


@pytest.mark.parametrize("flags", [(), ("--webhook-only=true", "--webhook-port=0")])
async def test_the_list_that_is_requested_before_imports_is_the_one_that_is_used(
    cluster: FakeApiServer, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """The extender requests all pods, the webhook alone those without a node; each once."""
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--host", "127.0.0.1", "--port", "0")
    async with command(*arguments, *flags):
        await until(
            "both are followed", lambda: cluster.watching("nodes") and cluster.watching("pods")
        )
    assert (cluster.lists("nodes"), cluster.lists("pods")) == (1, 1)


@pytest.mark.parametrize(("text", "port"), [("12345", 12345), ("none", 39999), (None, 39999)])
def test_port_follows_the_originals_rule(
    monkeypatch: pytest.MonkeyPatch, text: str | None, port: int
) -> None:
    """PORT where it is a number, else 39999."""
    monkeypatch.delenv("PORT", raising=False)
    if text is not None:
        monkeypatch.setenv("PORT", text)
    assert CliApp.run(ExtenderSettings, cli_args=[]).port == port


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags, then PORT, LOG_LEVEL and GPUSHARE_ variables, then defaults."""
    monkeypatch.setenv("PORT", "1")
    monkeypatch.setenv("LOG_LEVEL", "debug")
    monkeypatch.setenv("GPUSHARE_DOMAIN", "example.com")
    settings = CliApp.run(ExtenderSettings, cli_args=["--port", "2"])
    assert (settings.port, settings.log_level) == (2, "debug")
    assert settings.names.gpu_mem == "example.com/gpu-mem"


async def test_a_service_that_cannot_follow_ends_instead_of_serving_blindly(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A port that is taken is an error and an exit code, not a process that hangs."""
    (tmp_path / "kubeconfig").write_text(cluster.kubeconfig())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        flags = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--port", port)
        async with command(*flags, "--host", "127.0.0.1") as process:
            await asyncio.wait_for(process.communicate(), START_SECONDS)
    assert process.returncode not in {0, None}
