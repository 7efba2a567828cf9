"""A clock of the machine that is set anew: nothing that is reserved becomes older by it."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from decoded import a_node, a_pod, state_of
from objects import pod

from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName
from gpuextender import housekeeping
from gpuextender.scheduling import binding
from gpuextender.scheduling.bind import Bind, BindResult
from gpuextender.scheduling.binding import BindBatches, BindingWriter, Recorder
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.messages import BindingArgs
from gpuextender.state import State
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import RecordedRequest, ScriptedClient

HOUR_NS = 3_600_000_000_000
TTL = 40.0
A, B = NodeName("a"), NodeName("b")


def set_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's clock shows an hour more from now on, to each module that reads it."""
    read = time.time_ns
    for name, module in list(sys.modules.items()):
        if name.startswith("gpuextender.") and getattr(module, "time_ns", None) is read:
            monkeypatch.setattr(module, "time_ns", lambda: read() + HOUR_NS)


def a_bind(state: State, api: ScriptedClient) -> Bind:
    """Binds by the clock of the product."""
    recorder = Recorder(api, instance="x")  # type: ignore[arg-type] - as far as it is used
    writer = BindingWriter(api, deadline=TTL, batches=BindBatches(lambda: 0, lambda: 0))
    gangs = Gangs(state, Rules())
    return Bind(state, api, recorder, writer, gangs, rules=Rules())


@asynccontextmanager
async def expiring(state: State) -> AsyncIterator[None]:
    """The job that releases what nothing confirmed runs meanwhile."""
    health = SimpleNamespace(obstacle=lambda: "")
    job = housekeeping.expire_reservations(state, health, ttl=TTL)  # type: ignore[arg-type]
    task = asyncio.create_task(job)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_bind_under_way_keeps_its_gpu_memory_when_the_clock_is_set_ahead(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next pod gets the same GPU while the API server still writes the first Binding."""
    monkeypatch.setattr(binding, "monotonic", clock.now)
    state = state_of(a_node("n", 15))
    refused: list[BindResult] = []

    async def slowly(_: RecordedRequest) -> bytes:
        set_ahead(monkeypatch)
        await asyncio.sleep(TTL / 2)
        refused.append(await bind.bind(BindingArgs("q", "default", "q", "n")))
        return b"{}"

    bind = a_bind(state, ScriptedClient(slowly, b"{}"))
    for name in ("p", "q"):
        state.pod_changed(a_pod(pod(name, 15, uid=name)))
    async with expiring(state):
        bound = await bind.bind(BindingArgs("p", "default", "p", "n"))
    assert bound == BindResult("bound")
    assert [one.fate for one in refused] == ["refused"]


async def test_a_namespace_owes_no_time_by_which_the_clock_was_set(
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its gangs would lose their places, and get none for hours."""
    state = state_of(a_node("a", 8), a_node("b", 8))
    gangs = Gangs(state, Rules())
    labels = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    items = [pod(name, 8, uid=name, labels=labels) for name in ("p", "q")]
    for item in items:
        state.pod_changed(a_pod(item))
    pending = state.saw(a_pod(items[0]))
    assert gangs.admit(pending, [A, B]) == {A, B}
    set_ahead(monkeypatch)
    async with expiring(state):
        await asyncio.sleep(TTL / 2)
    assert gangs.admit(pending, [A, B]) == {A, B}
