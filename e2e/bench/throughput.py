"""How many pods a second go from created to running, with a real kube-scheduler in between."""

import time

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter

PATH = f"/api/v1/namespaces/{fakenodes.NAMESPACE}/pods"
LIMIT_SECONDS = 300


async def measure(calls: ApiCalls, scheduler: str, *, pods: int) -> float:
    """Pods bound a second, from the first creation to the last binding seen on a watch.

    The pods are created while the scheduler works, faster than it can place them.
    """
    stamp = time.monotonic_ns()
    batch = [fakenodes.pod(f"e2e-{stamp}-{i}", 1, scheduler=scheduler) for i in range(pods)]
    async with BoundCounter(calls, prefix=f"e2e-{stamp}-") as counter:
        begin = time.perf_counter()
        await calls.create(PATH, batch)
        await counter.wait(pods, seconds=LIMIT_SECONDS)
        return pods / (time.perf_counter() - begin)
