"""Real schedulers place a pod that waits for an exclusive GPU soon after the share on it ends.

The extender's watch is held back here, so that its view is older than the scheduler's whenever a
share ends: what happens now and then on a busy machine happens every time.
``GPUSHARE_WAITING_PODS`` sets how many pods wait in turn, and then each must be placed in two
seconds, under load as well. Without it each must be placed long before kube-scheduler's flush after
five minutes, which holds on any machine.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
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
from gpukube.client import HttpKubeClient

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
PODS: Final = "/api/v1/namespaces/default/pods"
ENVIRONMENT: Final = dict(os.environ)  # before a fixture takes our settings away
WAITING: Final = int(ENVIRONMENT.get("GPUSHARE_WAITING_PODS", "20"))
LANES: Final = 20
LATE_SECONDS: Final = 0.2
PLACED_SECONDS: Final = 2.0
SUITE_SECONDS: Final = 60.0
"""In the suite, on a machine that may stall for many seconds."""
LONGEST_DELAY: Final = 3.0
UNITS: Final = 16
SCHEDULER: Final = "whole"


class LateApi(HttpKubeClient):
    """The API server, of whose pods this process hears later than everybody else."""

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        async for lines in super().watch(path, params=params, silence=silence):
            if path.endswith("/pods") and lines:
                await asyncio.sleep(LATE_SECONDS)
            yield lines


def gpu_node(number: int) -> Object:
    """A node with one GPU, which offers shares and the whole."""
    (item,) = fakenodes.nodes(1, gpus=1, units=UNITS)
    name = f"lane-{number:02}"
    item["metadata"]["name"] = name
    item["metadata"]["labels"]["kubernetes.io/hostname"] = name
    item["metadata"]["annotations"]["gpushare/inventory"] = fakenodes.inventory(name, 1, UNITS)
    for kind in ("capacity", "allocatable"):
        item["status"][kind] = item["status"][kind] | {"aliyun.com/gpu": "1"}
    return item


def share_on(name: str, lane: int) -> Object:
    """A pod that holds a share of the lane's GPU."""
    item = fakenodes.pod(name, 1, scheduler="none")
    item["spec"]["nodeName"] = f"lane-{lane:02}"
    item["metadata"]["annotations"] = {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "1",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
    }
    return item


def whole_of(name: str, lane: int) -> Object:
    """A pod that waits for the lane's GPU as a whole."""
    item = fakenodes.pod(name, 1, scheduler=SCHEDULER, resource="aliyun.com/gpu")
    item["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"lane-{lane:02}"}
    return item


async def read(calls: ApiCalls, name: str) -> Object:
    """A pod as it is."""
    found: Object = msgspec.json.decode(await calls.call("GET", f"{PODS}/{name}"))
    return found


async def until_pod(calls: ApiCalls, name: str, seconds: float, *, placed: bool) -> bool:
    """Whether the pod is placed, or refused, in time."""
    end = monotonic() + seconds
    while monotonic() < end:
        item = await read(calls, name)
        conditions = item["status"].get("conditions", ())
        if item["spec"].get("nodeName") if placed else conditions:
            return True
        await asyncio.sleep(0.02)
    return False


async def one_turn(calls: ApiCalls, lane: int, turn: int, delay: float) -> float:
    """A share ends ``delay`` seconds after the refusal; seconds until the whole GPU is given."""
    share, whole = f"share-{lane}-{turn}", f"whole-{lane}-{turn}"
    await calls.call("POST", PODS, share_on(share, lane))
    await asyncio.sleep(2 * LATE_SECONDS)  # the extender hears of it late
    await calls.call("POST", PODS, whole_of(whole, lane))
    assert await until_pod(calls, whole, 2 * SUITE_SECONDS, placed=False), "never refused"
    await asyncio.sleep(delay)
    await calls.call("DELETE", f"{PODS}/{share}?gracePeriodSeconds=0")
    since = monotonic()
    placed = await until_pod(calls, whole, SUITE_SECONDS, placed=True)
    took = monotonic() - since
    await calls.call("DELETE", f"{PODS}/{whole}?gracePeriodSeconds=0")
    return took if placed else float("inf")


@asynccontextmanager
async def load(calls: ApiCalls, *, on: bool) -> AsyncIterator[None]:
    """Shares that come and go on a node beside, as fast as they are placed."""

    async def churn(number: int) -> None:
        turn = 0
        while True:
            name, turn = f"load-{number}-{turn}", turn + 1
            item = fakenodes.pod(name, 1, scheduler=SCHEDULER)
            item["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-00000"}
            await calls.call("POST", PODS, item)
            await until_pod(calls, name, 30, placed=True)
            await calls.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    tasks = [asyncio.create_task(churn(number)) for number in range(8 if on else 0)]
    try:
        yield
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("loaded", [False, True], ids=["quiet", "loaded"])
async def test_a_pod_that_waits_for_a_whole_gpu_is_placed_when_the_share_ends(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, loaded: bool
) -> None:
    """However long after its refusal the share ends, and whatever else is being scheduled."""
    monkeypatch.setattr("running.HttpKubeClient", LateApi)
    delays = random.Random(15)
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", (gpu_node(number) for number in range(LANES)))
        await calls.create("/api/v1/nodes", fakenodes.nodes(1))
        await calls.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        async with Running(Source(plane), tmp_path, bind_deadline=30) as extender:
            await extender.ready()
            url = f"{extender.url}/gpushare-scheduler"
            process = await asyncio.to_thread(plane.scheduler, url, name=SCHEDULER)
            try:
                async with load(calls, on=loaded):
                    turns = [(number % LANES, number // LANES) for number in range(WAITING)]
                    times = await _all(calls, turns, delays)
            finally:
                await asyncio.to_thread(process.stop)
    limit = PLACED_SECONDS if "GPUSHARE_WAITING_PODS" in ENVIRONMENT else SUITE_SECONDS
    late = sorted(took for took in times if took > limit)
    print(f"placed {len(times) - len(late)} of {len(times)}, longest {max(times):.2f} s; {late}")
    assert not late


async def _all(calls: ApiCalls, turns: list[tuple[int, int]], delays: random.Random) -> list[float]:
    """All turns, those of one lane one after the other."""
    drawn = {turn: delays.uniform(0, LONGEST_DELAY) for turn in turns}

    async def follow(lane: int) -> list[float]:
        mine = [turn for turn in turns if turn[0] == lane]
        return [await one_turn(calls, lane, turn, drawn[lane, turn]) for _, turn in mine]

    found = await asyncio.gather(*(follow(lane) for lane in range(LANES)))
    return [took for lane in found for took in lane]
