"""How long a backlog takes: pods wait while no scheduler runs, then scheduler and extender start.

Time runs from the start of both to the last binding seen on a watch, and so does the CPU of each
process: reading the cluster and writing nominations are inside.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from bench.binds import PATH, Rate
from bench.meter import Meter, spent
from bench.subject import PREFIX, Subject
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import BURST_SUFFIX, ControlPlane
from environments.processes import ChildProcess, free_port

LIMIT_SECONDS: Final = 600
UNITS: Final = 20
"""Of each pod; a node of the rig takes 32 of them."""
PARALLEL: Final = 32


class BacklogRow(msgspec.Struct, frozen=True):
    """One way to place the backlog.

    Attributes:
        flags: of the extender; ``None`` runs without one.
        percentage: of the nodes that kube-scheduler evaluates; 0 is its default.
        exact: number of pods after which the webhook gives pods the burst profile; ``None`` never.
    """

    flags: tuple[str, ...] | None = None
    percentage: int = 0
    exact: int | None = None


ROWS: Final[Mapping[str, BacklogRow]] = {
    "scheduler alone": BacklogRow(),
    "all candidates, no nominations": BacklogRow(("--nominate=off", "--candidates=0")),
    "best candidate of a sample": BacklogRow(("--nominate=refused",)),
    "best candidate of a sample, backlog nominated": BacklogRow(("--nominate=backlog",)),
    "best candidate of 100 nodes": BacklogRow(("--nominate=refused",), percentage=1),
    "best candidate of all nodes": BacklogRow(("--nominate=refused",), percentage=100),
    "two profiles": BacklogRow(("--nominate=refused",), percentage=100, exact=33),
    "best candidate of all nodes, backlog nominated": BacklogRow(
        ("--nominate=backlog",), percentage=100
    ),
}


class Placed(Rate):
    """A rate, and on how many nodes the pods are."""

    nodes: int


async def measure(plane: ControlPlane, calls: ApiCalls, row: BacklogRow, *, pods: int) -> Placed:
    """Pods bound a second; the pods are deleted again."""
    scheduler = f"backlog-{time.monotonic_ns()}"
    names = [f"{scheduler}-{number:05}" for number in range(pods)]
    bodies = (
        fakenodes.pod(name, UNITS, scheduler=_profile(row, scheduler, number))
        for number, name in enumerate(names)
    )
    async with BoundCounter(calls, prefix=scheduler) as counter:
        await calls.create(PATH, bodies)
        begin, meter = time.perf_counter(), Meter(plane.pids())
        started = await _start(plane, row, scheduler)
        try:
            await counter.wait(pods, seconds=LIMIT_SECONDS)
            seconds, used = time.perf_counter() - begin, meter.milliseconds(each_of=pods)
            used |= {name: spent(one.pid) * 1000 / pods for name, one in started.items()}
            return Placed(pods / seconds, used, await _nodes(calls, scheduler))
        finally:
            for one in started.values():
                one.stop()
            await delete(calls, names)


def _profile(row: BacklogRow, scheduler: str, number: int) -> str:
    burst = row.exact is not None and number >= row.exact
    return f"{scheduler}{BURST_SUFFIX}" if burst else scheduler


async def _start(plane: ControlPlane, row: BacklogRow, scheduler: str) -> dict[str, ChildProcess]:
    """Scheduler and extender at the same moment, as in one pod."""
    port = free_port()
    url = f"http://127.0.0.1:{port}{PREFIX}" if row.flags is not None else None
    profiles = [{}] if row.exact is None else [{}, {"percentageOfNodesToScore": 1}]
    like = {"profiles": profiles, "percentageOfNodesToScore": row.percentage}
    begin = partial(plane.scheduler, url, name=scheduler, like=like)
    starts = {"kube-scheduler": begin}
    if row.flags is not None:
        starts["extender"] = partial(_extender, plane, row.flags, port)
    found = await asyncio.gather(*(asyncio.to_thread(start) for start in starts.values()))
    return dict(zip(starts, found, strict=True))


def _extender(plane: ControlPlane, flags: Sequence[str], port: int) -> ChildProcess:
    process = Subject.ours(plane, flags, port=port).process
    if process is None:
        raise AssertionError("the extender was not started here")
    return process


async def _nodes(calls: ApiCalls, prefix: str) -> int:
    """On how many nodes the pods are."""
    found: dict[str, Any] = msgspec.json.decode(await calls.call("GET", PATH))
    mine = (item for item in found["items"] if item["metadata"]["name"].startswith(prefix))
    return len({item["spec"]["nodeName"] for item in mine})


async def delete(calls: ApiCalls, names: Sequence[str]) -> None:
    """Delete these pods."""
    for first in range(0, len(names), PARALLEL):
        few = names[first : first + PARALLEL]
        paths = [f"{PATH}/{name}?gracePeriodSeconds=0" for name in few]
        await asyncio.gather(*(calls.call("DELETE", path) for path in paths))
