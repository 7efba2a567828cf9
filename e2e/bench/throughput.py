"""How many pods a second go from created to bound, with a real kube-scheduler in between."""

import time
from collections.abc import Mapping

import msgspec

from bench.binds import PATH, Rate
from bench.meter import Meter
from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter

LIMIT_SECONDS = 300
WARM_UP = 20


async def measure(calls: ApiCalls, scheduler: str, *, pods: int, pids: Mapping[str, int]) -> Rate:
    """Pods bound a second, from the first creation to the last binding seen on a watch.

    The pods are created while the scheduler works, faster than it can place them. A few go first,
    so that what a scheduler reads at its start is not measured.
    """
    await _schedule(calls, scheduler, WARM_UP)
    meter = Meter(pids)
    seconds = await _schedule(calls, scheduler, pods)
    return Rate(pods / seconds, meter.milliseconds(each_of=pods))


async def _schedule(calls: ApiCalls, scheduler: str, pods: int) -> float:
    """Seconds until ``pods`` new pods are bound."""
    stamp = f"e2e-{time.monotonic_ns()}-"
    bodies = [
        msgspec.Raw(msgspec.json.encode(fakenodes.pod(f"{stamp}{i}", 1, scheduler=scheduler)))
        for i in range(pods)
    ]
    async with BoundCounter(calls, prefix=stamp) as counter:
        begin = time.perf_counter()
        await calls.create(PATH, bodies)
        await counter.wait(pods, seconds=LIMIT_SECONDS)
        return time.perf_counter() - begin
