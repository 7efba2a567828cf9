"""A pod that one node of many can take is bound soon, though the scheduler looks at few of them.

Every other node has memory enough, but on no single GPU: kube-scheduler sees only the sum.
``GPUSHARE_LONE_NODES`` sets the number of nodes and ``GPUSHARE_LONE_PODS`` the number of pods, one
after the other; then each must be bound within two seconds.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import pytest
from planes import Source, plane
from running import Running

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from gpuextender import metrics

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
PODS: Final = "/api/v1/namespaces/default/pods"
ENVIRONMENT: Final = dict(os.environ)  # before a fixture takes our settings away
NODES: Final = int(ENVIRONMENT.get("GPUSHARE_LONE_NODES", "600"))
WAITING: Final = int(ENVIRONMENT.get("GPUSHARE_LONE_PODS", "10"))
BOUND_SECONDS: Final = 2.0
SUITE_SECONDS: Final = 60.0
"""In the suite, on a machine that may stall for many seconds; the flush comes after 300."""
GPUS, UNITS, HELD = 2, 8, 4
SCHEDULER: Final = "lone"


def holders(fitting: int) -> Iterator[Object]:
    """Pods on every GPU but those of one node."""
    for item in fakenodes.running(NODES * GPUS, NODES, gpus=GPUS, units=HELD):
        if item["spec"]["nodeName"] != f"node-{fitting:05}":
            yield item


async def seconds_until_bound(calls: ApiCalls, name: str) -> float:
    """From the creation of a pod that only one node can take."""
    item = fakenodes.pod(name, UNITS, scheduler=SCHEDULER)
    item["spec"]["containers"][0]["image"] = name  # no two pods are alike for the scheduler
    begin = monotonic()
    await calls.call("POST", PODS, item)
    while monotonic() - begin < 2 * SUITE_SECONDS:
        item = msgspec.json.decode(await calls.call("GET", f"{PODS}/{name}"))
        if item["spec"].get("nodeName"):
            break
        await asyncio.sleep(0.02)
    took = monotonic() - begin
    await calls.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    return took


async def test_a_pod_that_one_node_can_take_is_bound_at_once(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """The extender nominates the node when the scheduler's sample did not hold it."""
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", fakenodes.nodes(NODES, gpus=GPUS, units=UNITS))
        await calls.create(PODS, holders(NODES // 2))
        async with Running(Source(plane), tmp_path, bind_deadline=30) as extender:
            await extender.ready()
            url = f"{extender.url}/gpushare-scheduler"
            process = await asyncio.to_thread(plane.scheduler, url, name=SCHEDULER)
            try:
                times = [
                    await seconds_until_bound(calls, f"lone-{number}") for number in range(WAITING)
                ]
            finally:
                await asyncio.to_thread(process.stop)
    limit = BOUND_SECONDS if "GPUSHARE_LONE_PODS" in ENVIRONMENT else SUITE_SECONDS
    late = sorted(took for took in times if took > limit)
    retried = sum(took > 0.5 for took in times)
    print(f"bound {len(times) - len(late)} of {len(times)}, longest {max(times):.2f} s; {late}")
    written = metrics.NOMINATIONS.labels("written")._value.get()
    print(f"{written:.0f} nominations, {retried} pods took more than half a second")
    assert not late
