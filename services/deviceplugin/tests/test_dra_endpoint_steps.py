"""The sockets of the DRA driver in order, and what is counted of kubelet's calls."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from fakedra.claims import FakeClaims, holding, node
from fakedra.kubelet import DraKubelet
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.endpoint import STOP_SECONDS, DraEndpoint
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.signals import Signal
from gpukube.testing.waiting import until

pytestmark = pytest.mark.slow


class Stage:
    """A driver, and what its servers did in which order."""

    def __init__(self, root: Path) -> None:
        self.registry, self.home, self.cdi = root / "registry", root / "gpu", root / "cdi"
        self.claims = FakeClaims()
        self.steps: list[str] = []
        files = ClaimFiles(self.home, self.cdi)
        self.preparer = ClaimPreparer(self.claims, files, node, holder=holding())
        self.driver = DraEndpoint(
            registry=self.registry,
            home=self.home,
            preparer=self.preparer,
            node=node,
            changed=Signal(),
        )

    def note(self, what: str, path: str) -> None:
        """A step, and whether kubelet can find the driver at that moment."""
        found = "found" if self.driver.registry_socket.exists() else "not found"
        self.steps.append(f"{what} {Path(path).name}, {found}")

    async def kubelet(self) -> DraKubelet:
        """One that has registered the driver."""
        kubelet = DraKubelet(self.registry)
        await kubelet.register()
        return kubelet


def recording(stage: Stage, real: Any) -> Any:
    """``grpc.aio.server`` whose servers report their steps."""

    def make() -> Any:
        server, paths = real(), []
        start, stop, listen = server.start, server.stop, server.add_insecure_port

        async def started() -> None:
            await start()
            stage.note("serve", paths[0])

        async def stopped(grace: float | None) -> None:
            assert grace == STOP_SECONDS
            stage.note("stop", paths[0])
            await stop(grace)

        server.add_insecure_port = lambda path: paths.append(path) or listen(path)
        server.start, server.stop = started, stopped
        return server

    return make


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A driver that serves."""
    made = Stage(tmp_path)
    monkeypatch.setattr(grpc.aio, "server", recording(made, grpc.aio.server))
    await made.driver.start()
    yield made
    await made.driver.stop()


def sample(name: str, **labels: str) -> float:
    """The value of a metric now; 0 where it has none."""
    return REGISTRY.get_sample_value(f"gpushare_plugin_{name}", labels) or 0.0


async def test_kubelet_finds_the_driver_only_while_it_serves(stage: Stage) -> None:
    """It calls at once; so the socket by which it is found comes last and goes first."""
    assert stage.steps == [
        "serve dra.sock, not found",
        "serve gpu.gpushare.io-reg.sock, found",
    ]
    stage.steps.clear()
    await stage.driver.stop()
    assert stage.steps == [
        "stop gpu.gpushare.io-reg.sock, not found",
        "stop dra.sock, not found",
    ]
    assert [path.name for path in stage.home.glob("*.sock")] == []


async def test_the_service_socket_of_a_killed_plugin_is_removed(stage: Stage) -> None:
    """That of a plugin that serves stays, and so do other files."""
    await stage.driver.stop()
    dead, other = stage.home / "dra-pod-0.sock", stage.home / "claims.lock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    other.touch()
    await stage.driver.start()
    assert not dead.exists()
    assert other.exists()
    second = DraEndpoint(
        registry=stage.registry,
        home=stage.home,
        preparer=stage.preparer,
        node=node,
        changed=Signal(),
        instance="pod-2",
    )
    await second.start()
    assert {path.name for path in stage.home.glob("*.sock")} == {"dra.sock", "dra-pod-2.sock"}
    await second.stop()


async def test_the_socket_of_a_plugin_that_stands_still_holds_up_nobody(stage: Stage) -> None:
    """During a rolling update the other one may be out of memory or time: its socket stays."""
    await stage.driver.stop()
    still = stage.home / "dra-pod-0.sock"
    with ExitStack() as sockets:
        server = sockets.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(still))
        server.listen(0)
        with suppress(BlockingIOError):
            while True:
                waiting = sockets.enter_context(socket.socket(socket.AF_UNIX))
                waiting.settimeout(0)
                waiting.connect(str(still))
        await stage.driver.start()
        assert still.exists()


@pytest.mark.parametrize("which", ["registry_socket", "socket"])
async def test_a_socket_that_somebody_removed_is_served_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Kubelet finds the driver again, and a claim can be prepared."""
    await stage.driver.stop()
    monkeypatch.setattr("gpudeviceplugin.dra.endpoint.LOOK_SECONDS", 0.01)
    stage.claims.add("a", 0)
    stage.steps.clear()
    running = asyncio.create_task(stage.driver.run())
    served = "serve gpu.gpushare.io-reg.sock, found"
    await until("the sockets", lambda: served in stage.steps)
    stage.steps.clear()
    getattr(stage.driver, which).unlink()
    await until("the sockets again", lambda: served in stage.steps)
    kubelet = await stage.kubelet()
    assert not (await kubelet.prepare("a"))["a"].error
    running.cancel()
    await asyncio.wait({running})
    assert list(stage.registry.iterdir()) == []


async def test_sockets_have_short_names_where_paths_are_too_long(
    stage: Stage, tmp_path: Path
) -> None:
    """A long root directory of kubelet; a dead plugin's short names are removed as well."""
    long = tmp_path / ("k" * (70 - len(str(tmp_path))))
    registry, home = long / "registry", long / "gpu"
    registry.mkdir(parents=True)
    dead = registry / "gpushare-00000000.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    driver = DraEndpoint(
        registry=registry,
        home=home,
        preparer=stage.preparer,
        node=node,
        changed=Signal(),
        instance="7d9a6d0e-3f0d-4a2c-9d53-0123456789ab",
    )
    await driver.start()
    kubelet = DraKubelet(registry)
    await kubelet.register()
    assert driver.registered.is_set()
    (registered,) = registry.glob("*.sock")
    (served,) = home.glob("*.sock")
    assert (registered.name[:9], served.name[:4]) == ("gpushare-", "dra-")
    await driver.stop()


async def test_a_driver_that_was_stopped_is_not_registered(stage: Stage) -> None:
    """The next kubelet call is a new registration; readiness waits for that."""
    await stage.kubelet()
    assert stage.driver.registered.is_set()
    await stage.driver.stop()
    assert not stage.driver.registered.is_set()


async def test_calls_and_failures_are_counted_by_step(stage: Stage) -> None:
    """A claim that fails is one failure, whatever else is in the call."""
    stage.claims.add("a", 0)
    kubelet = await stage.kubelet()
    labels = {"call": "NodePrepareResources", "resource": "claims"}
    calls = sample("call_seconds_count", **labels)
    failed = sample("claim_failures_total", step="prepare")
    await kubelet.prepare("a", "gone", "never")
    assert sample("call_seconds_count", **labels) == calls + 1
    assert sample("claim_failures_total", step="prepare") == failed + 2
    labels["call"] = "NodeUnprepareResources"
    calls = sample("call_seconds_count", **labels)
    await kubelet.unprepare("a")
    assert sample("call_seconds_count", **labels) == calls + 1


async def test_faults_of_the_program_are_counted_as_failures(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told apart in the log."""
    failed = sample("claim_failures_total", step="unprepare")

    def fault(_self: Path, **_more: object) -> None:
        raise AttributeError

    kubelet = await stage.kubelet()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", fault)
        answers = await kubelet.unprepare("a")
    assert "unexpected AttributeError" in answers["a"].error
    assert sample("claim_failures_total", step="unprepare") == failed + 1


async def test_a_socket_that_cannot_be_served_again_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end of the plugin would be the end of its MPS daemons, and of the pods behind them."""
    monkeypatch.setattr("gpudeviceplugin.dra.endpoint.LOOK_SECONDS", 0.01)
    await stage.driver.stop()
    running = asyncio.create_task(stage.driver.run())
    await until("it serves", stage.driver.registry_socket.exists)
    stage.registry.rename(stage.registry.with_name("away"))
    stage.registry.touch()
    with capture_logs() as logs:
        await until("it fails", lambda: running.done() or "cannot serve" in str(logs))
    stage.registry.unlink()
    await until("it serves", lambda: running.done() or stage.driver.registry_socket.exists())
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
