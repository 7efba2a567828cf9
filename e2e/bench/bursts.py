"""Pods that name no scheduler, by the webhook: a burst of them, and few a second.

Scheduler, extender and webhook run before the first pod is created. A burst is timed from the
creation of its first pod to the last binding; pods are created as quickly as the API server takes
them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bench import admission
from bench.backlog import LIMIT_SECONDS, UNITS, delete
from bench.binds import PATH, Rate
from bench.meter import Meter
from bench.stack import DEFAULT, Stack, running
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import BURST_SUFFIX, ControlPlane

INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"
TRICKLES: Final[Mapping[int, int]] = {1: 10, 20: 100}
"""Pods a second, and how many are created."""


BURST_ROWS: Final[Mapping[str, Stack]] = {
    "scheduler alone": Stack(),
    "two profiles": DEFAULT,
    "100 nodes": replace(DEFAULT, burst_pods=0, percentage=1),
    "all nodes": replace(DEFAULT, burst_pods=0),
    "two profiles, two webhooks": replace(DEFAULT, webhooks=2),
}


class Burst(Rate):
    """A rate, how long the creation took, and what the pods were given.

    Attributes:
        profiles: number of pods by profile, ``exact`` or ``burst``.
        gpus: on which the pods are.
    """

    created_seconds: float
    profiles: Mapping[str, int]
    nodes: int
    gpus: int


async def measure(
    plane: ControlPlane, calls: ApiCalls, row: Stack, *, pods: int
) -> dict[str, Burst]:
    """Each trickle, then the burst; the pods are deleted again."""
    name = admission.unique("burst")
    async with running(plane, calls, row, name) as (pids, named):
        found = {}
        for rate, count in TRICKLES.items():
            found[f"{rate} a second"] = await _place(
                calls, pids, named, f"{name}-{rate}", rate=rate, pods=count
            )
        found["burst"] = await _place(calls, pids, named, f"{name}-all", rate=0, pods=pods)
        return found


async def _place(
    calls: ApiCalls, pids: Mapping[str, int], scheduler: str, prefix: str, *, rate: int, pods: int
) -> Burst:
    names = [f"{prefix}-{number:05}" for number in range(pods)]
    async with BoundCounter(calls, prefix=prefix) as counter:
        begin, meter = time.perf_counter(), Meter(pids)
        await _create(calls, names, scheduler, rate=rate)
        created = time.perf_counter() - begin
        await counter.wait(pods, seconds=LIMIT_SECONDS)
        seconds = max(counter.bound_at.values()) - begin
        used = meter.milliseconds(each_of=pods)
    try:
        return await _read(calls, prefix, Rate(pods / seconds, used), created)
    finally:
        await delete(calls, names)


async def _create(calls: ApiCalls, names: Sequence[str], scheduler: str, *, rate: int) -> None:
    """At a rate, or as quickly as possible where that is 0."""
    if not rate:
        bodies = (fakenodes.pod(name, UNITS, scheduler=scheduler) for name in names)
        await calls.create(PATH, bodies)
        return
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            item = fakenodes.pod(name, UNITS, scheduler=scheduler)
            group.create_task(calls.call("POST", PATH, item))


async def _read(calls: ApiCalls, prefix: str, rate: Rate, created: float) -> Burst:
    found: dict[str, Any] = msgspec.json.decode(await calls.call("GET", PATH))
    mine = [item for item in found["items"] if item["metadata"]["name"].startswith(prefix)]
    named = Counter(
        "burst" if item["spec"]["schedulerName"].endswith(BURST_SUFFIX) else "exact"
        for item in mine
    )
    nodes = {item["spec"]["nodeName"] for item in mine}
    gpus = {
        (item["spec"]["nodeName"], item["metadata"].get("annotations", {}).get(INDEX))
        for item in mine
    }
    return Burst(
        per_second=rate.per_second,
        cpu_ms=rate.cpu_ms,
        created_seconds=created,
        profiles=dict(named),
        nodes=len(nodes),
        gpus=len(gpus),
    )
