"""How long a pod waits from its creation to its binding, where pods come at a steady rate.

Scheduler and extender run before the first pod comes. The clock of this process dates both ends:
the request that creates a pod, and the event of a watch that shows its node.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec

from bench.binds import PATH
from bench.meter import Meter
from bench.subject import PREFIX, Subject
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import ControlPlane
from environments.processes import free_port

LIMIT_SECONDS: Final = 300
UNITS: Final = 20
RATES: Final[Mapping[int, int]] = {1: 15, 10: 100, 20: 200, 50: 500, 100: 600}
"""Pods a second, and how many are created."""
WARM_UP: Final = 10
POLICY_PROFILE: Final[Mapping[str, Any]] = {
    "plugins": {
        "score": {
            "disabled": [
                {"name": name}
                for name in (
                    "NodeResourcesFit",
                    "NodeResourcesBalancedAllocation",
                    "ImageLocality",
                )
            ]
        }
    },
    "pluginConfig": [
        {
            "name": "PodTopologySpread",
            "args": {"defaultingType": "List", "defaultConstraints": []},
        }
    ],
}
"""As the chart's."""


class CreationRow(msgspec.Struct, frozen=True):
    """One way to place the pods.

    Attributes:
        flags: of the extender; ``None`` runs without one.
        percentage: of the nodes that kube-scheduler evaluates; 0 is its default.
        profile: fields of the scheduler's profile.
    """

    flags: tuple[str, ...] | None = None
    percentage: int = 0
    profile: Mapping[str, Any] = {}


CREATION_ROWS: Final[Mapping[str, CreationRow]] = {
    "scheduler alone": CreationRow(),
    "all candidates, sample of nodes": CreationRow(("--nominate=off", "--candidates=0")),
    "best node of a sample": CreationRow(("--nominate=refused",), profile=POLICY_PROFILE),
    "best of 100 nodes": CreationRow(("--nominate=refused",), 1, POLICY_PROFILE),
    "best node of all (default)": CreationRow(("--nominate=refused",), 100, POLICY_PROFILE),
    "best node of all, backlog nominated": CreationRow(
        ("--nominate=backlog",), 100, POLICY_PROFILE
    ),
}


class Delays(msgspec.Struct, frozen=True):
    """Milliseconds from creation to binding of every pod in order, and CPU for a pod by process."""

    milliseconds: list[float]
    cpu_ms: dict[str, float]


async def measure(plane: ControlPlane, calls: ApiCalls, row: CreationRow) -> dict[int, Delays]:
    """The delays at each of ``RATES``; the pods are deleted again."""
    name = f"creation-{time.monotonic_ns()}"
    async with _running(plane, row, name) as pids:
        await _stream(calls, name, f"{name}-warm-", 10, WARM_UP)
        found = {}
        for rate, pods in RATES.items():
            meter = Meter(pids)
            delays = await _stream(calls, name, f"{name}-{rate}-", rate, pods)
            found[rate] = Delays(delays, meter.milliseconds(each_of=pods))
        return found


@asynccontextmanager
async def _running(
    plane: ControlPlane, row: CreationRow, name: str
) -> AsyncIterator[Mapping[str, int]]:
    """Scheduler and extender; their process ids and those of the control plane."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{PREFIX}" if row.flags is not None else None
    like = {"profiles": [row.profile], "percentageOfNodesToScore": row.percentage}
    extender = None
    if row.flags is not None:
        extender = await asyncio.to_thread(Subject.ours, plane, row.flags, port=port)
    start = partial(plane.scheduler, url, name=name, like=like)
    scheduler = await asyncio.to_thread(start)
    try:
        pids = {**plane.pids(), "kube-scheduler": scheduler.pid}
        yield pids | (extender.pids() if extender else {})
    finally:
        scheduler.stop()
        if extender is not None:
            extender.stop()


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
