"""How long a pod waits from its creation to its binding, where pods come at a steady rate.

Scheduler and extender run before the first pod comes. The clock of this process dates both ends:
the request that creates a pod, and the event of a watch that shows its node.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from bench.binds import PATH
from bench.meter import Meter
from bench.stack import DEFAULT, POLICY_PROFILE, Stack, running
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import ControlPlane

LIMIT_SECONDS: Final = 300
UNITS: Final = 20
RATES: Final[Mapping[int, int]] = {1: 15, 10: 100, 20: 200, 50: 500, 100: 600}
"""Pods a second, and how many are created."""
WARM_UP: Final = 10
CREATION_ROWS: Final[Mapping[str, Stack]] = {
    "scheduler alone": Stack(),
    "all candidates, sample of nodes": Stack(("--nominate=off", "--candidates=0")),
    "best node of a sample": Stack(("--nominate=refused",), profile=POLICY_PROFILE),
    "best of 100 nodes": Stack(("--nominate=refused",), 1, POLICY_PROFILE),
    "two profiles (default)": DEFAULT,
    "best node of all": Stack(("--nominate=refused",), 100, POLICY_PROFILE),
    "best node of all, backlog nominated": Stack(("--nominate=backlog",), 100, POLICY_PROFILE),
}


class Delays(msgspec.Struct, frozen=True):
    """Milliseconds from creation to binding of every pod in order, and CPU for a pod by process."""

    milliseconds: list[float]
    cpu_ms: dict[str, float]


async def measure(plane: ControlPlane, calls: ApiCalls, row: Stack) -> dict[int, Delays]:
    """The delays at each of ``RATES``; the pods are deleted again."""
    name = f"creation-{time.monotonic_ns()}"
    async with running(plane, calls, row, name) as (pids, scheduler):
        await _stream(calls, scheduler, f"{name}-warm-", 10, WARM_UP)
        found = {}
        for rate, pods in RATES.items():
            meter = Meter(pids)
            delays = await _stream(calls, scheduler, f"{name}-{rate}-", rate, pods)
            found[rate] = Delays(delays, meter.milliseconds(each_of=pods))
        return found


async def _stream(
    calls: ApiCalls, scheduler: str, prefix: str, rate: int, pods: int
) -> list[float]:
    """Create pods at a rate; milliseconds until each is bound, in order."""
    created: dict[str, float] = {}
    async with BoundCounter(calls, prefix=prefix) as counter, asyncio.TaskGroup() as group:
        begin = time.perf_counter()
        for number in range(pods):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            name = f"{prefix}{number:04}"
            created[name] = time.perf_counter()
            item = fakenodes.pod(name, UNITS, scheduler=scheduler)
            group.create_task(calls.call("POST", PATH, item))
        await counter.wait(pods, seconds=LIMIT_SECONDS)
    found = sorted((counter.bound_at[name] - at) * 1000 for name, at in created.items())
    for name in created:
        await calls.call("DELETE", f"{PATH}/{name}?gracePeriodSeconds=0")
    return found
