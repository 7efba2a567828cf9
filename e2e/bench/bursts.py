"""Pods that name no scheduler, by the webhook: a burst of them, and few a second.

Scheduler, extender and webhook run before the first pod is created. A burst is timed from the
creation of its first pod to the last binding; pods are created as quickly as the API server takes
them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec

from bench import admission
from bench.backlog import LIMIT_SECONDS, UNITS, delete
from bench.binds import PATH, Rate
from bench.creation import POLICY_PROFILE
from bench.meter import Meter
from bench.subject import PREFIX, Subject
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import BURST_SUFFIX, ControlPlane
from environments.processes import free_port

TRICKLES: Final[Mapping[int, int]] = {1: 10, 20: 100}
"""Pods a second, and how many are created."""


class BurstRow(msgspec.Struct, frozen=True):
    """One way to place the pods.

    Attributes:
        percentage: of the nodes that kube-scheduler evaluates; 0 is its default.
        burst_pods: number of pending pods above which a second profile is used; 0 never.
        webhooks: number of processes; 0 runs kube-scheduler alone.
    """

    percentage: int = 0
    burst_pods: int = 0
    webhooks: int = 1


BURST_ROWS: Final[Mapping[str, BurstRow]] = {
    "scheduler alone": BurstRow(webhooks=0),
    "two profiles": BurstRow(percentage=100, burst_pods=32),
    "100 nodes": BurstRow(percentage=1),
    "all nodes": BurstRow(percentage=100),
    "two profiles, two webhooks": BurstRow(percentage=100, burst_pods=32, webhooks=2),
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
    plane: ControlPlane, calls: ApiCalls, row: BurstRow, *, pods: int
) -> dict[str, Burst]:
    """Each trickle, then the burst; the pods are deleted again."""
    name = admission.unique("burst")
    async with _running(plane, calls, row, name) as (pids, named):
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


INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"


@asynccontextmanager
async def _running(
    plane: ControlPlane, calls: ApiCalls, row: BurstRow, name: str
) -> AsyncIterator[tuple[Mapping[str, int], str]]:
    """What runs: the process ids, and the scheduler that new pods name."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{PREFIX}" if row.webhooks else None
    profile = POLICY_PROFILE if row.webhooks else {}
    profiles = (
        [profile, {**profile, "percentageOfNodesToScore": 1}] if row.burst_pods else [profile]
    )
    like = {"profiles": profiles, "percentageOfNodesToScore": row.percentage}
    flags = [f"--webhook-scheduler={name}"]
    if row.burst_pods:
        flags += [f"--burst-scheduler={name}{BURST_SUFFIX}", f"--burst-pods={row.burst_pods}"]
    async with AsyncExitStack() as ends:
        pids = dict(plane.pids())
        if row.webhooks:
            extender = await asyncio.to_thread(Subject.ours, plane, flags, port=port)
            ends.callback(extender.stop)
            pids |= extender.pids()
        process = await asyncio.to_thread(partial(plane.scheduler, url, name=name, like=like))
        ends.callback(process.stop)
        pids["kube-scheduler"] = process.pid
        if not row.webhooks:
            yield pids, name
            return
        hooks = admission.webhooks(plane, calls, flags, scheduler=name, count=row.webhooks)
        yield pids | dict(await ends.enter_async_context(hooks)), admission.UNNAMED
