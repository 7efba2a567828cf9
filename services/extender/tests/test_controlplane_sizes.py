"""What ``gpushare recommend --whatif`` frees is what a cluster made anew with these sizes frees.

A real API server and kube-scheduler place the pods of several Deployments, until some wait. What
the command predicts is compared with the same cluster after all pods were deleted and created with
the recommended sizes: from the largest to the smallest, as the command places them, and in a random
order, as rollouts would.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import pytest
from chartconfig import chart_config
from planes import Source, plane, scheduling
from running import Running

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import LimitEvent, UsageHistory, WorkloadKey

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
PODS: Final = "/api/v1/namespaces/default/pods"
NODES, GPUS, UNITS = 10, 4, 16
SCHEDULER: Final = "sizes"
SECONDS: Final = 60
GIB: Final = 1 << 30
DAYS: Final = 8 * 86400.0
NEWEST: Final = 1_790_000_000.0
WORKLOADS: Final = {
    "chat": (16, 6, 12),
    "embed": (6, 2, 18),
    "notebook": (10, 3, 14),
    "rank": (8, 7, 10),
    "speech": (12, 5, 10),
    "train": (14, 12, 8),
}
"""Requested GiB, GiB in use, and pods."""
MORE_IN_RANDOM_ORDER: Final = 1.1
"""Times the predicted GPUs, for pods that come in any order."""


def history(name: str) -> UsageHistory:
    """What the device plugins measured of the pods of a Deployment in eight days."""
    requested, used, pods = WORKLOADS[name]
    key = WorkloadKey("default", "Deployment", name, "main")
    found = UsageHistory(key, pods=pods, starts=pods)
    found.record(NEWEST, used * GIB, requested_bytes=requested * GIB, limit_bytes=0)
    found.requested_bytes, found.limit_bytes = requested * GIB, 0
    found.first_seen, found.last_seen, found.reached = NEWEST - DAYS, NEWEST, LimitEvent()
    return found


def pod(name: str, units: int) -> Object:
    """A pod of the Deployment that its name begins with."""
    item = fakenodes.pod(name, units, scheduler=SCHEDULER)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    owner |= {"name": f"{workload(name)}-7f8d", "uid": "11111111-2222-3333-4444-555555555555"}
    item["metadata"] |= {"ownerReferences": [owner], "labels": {"pod-template-hash": "7f8d"}}
    return item


def workload(name: str) -> str:
    """The Deployment of a pod."""
    return name.partition("-")[0]


@pytest.fixture
async def calls(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ApiCalls]:
    """Empty nodes, the extender, and a kube-scheduler with the chart's profile."""
    async with ApiCalls.to(plane) as session:
        config = await chart_config(plane, session)
        await session.create("/api/v1/nodes", fakenodes.nodes(NODES, gpus=GPUS, units=UNITS))
        async with Running(Source(plane), tmp_path, bind_deadline=30) as extender:
            await extender.ready()
            async with scheduling(plane, extender, SCHEDULER, config):
                yield session


async def placed(calls: ApiCalls, pods: Iterable[Object]) -> dict[str, str]:
    """Create pods, each after the one before was placed or refused; node and GPU of the placed."""
    found = {}
    for item in pods:
        await calls.call("POST", PODS, item)
        name = item["metadata"]["name"]
        if place := await place_of(calls, name):
            found[name] = place
    return found


async def place_of(calls: ApiCalls, name: str) -> str:
    """Node and GPU of a pod, empty once the scheduler has refused it."""
    end = monotonic() + SECONDS
    while monotonic() < end:
        item = msgspec.json.decode(await calls.call("GET", f"{PODS}/{name}"))
        if node := item["spec"].get("nodeName"):
            return f"{node} {item['metadata']['annotations']['ALIYUN_COM_GPU_MEM_IDX']}"
        if item["status"].get("conditions"):
            return ""
        await asyncio.sleep(0.02)
    raise AssertionError(f"{name} was neither placed nor refused")


async def made_anew(calls: ApiCalls, pods: Sequence[Object]) -> dict[str, str]:
    """Delete all pods, then place these."""
    await calls.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
    return await placed(calls, pods)


async def recommend(plane: ControlPlane, histories: Path, *flags: str) -> Object:
    """The answer of ``gpushare recommend``."""
    command = [Path(sys.executable).parent / "gpushare", "recommend", "-A", "-o", "json"]
    command += [f"--kubeconfig={plane.kubeconfig}", f"--history={histories}", *flags]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Object = json.loads(done.stdout)
    return found


async def test_a_cluster_made_anew_needs_the_gpus_that_the_command_predicts(
    plane: ControlPlane, calls: ApiCalls, tmp_path: Path
) -> None:
    """The same GPUs and the same waiting pods in the command's order, few more in any order."""
    chance = random.Random(18)
    names = [f"{each}-{n:02}" for each, (_, _, pods) in WORKLOADS.items() for n in range(pods)]
    chance.shuffle(names)
    before = await placed(calls, [pod(name, WORKLOADS[workload(name)][0]) for name in names])
    waiting = [name for name in names if name not in before]
    assert waiting

    histories = tmp_path / "histories"
    histories.write_bytes(encode_histories("node-00000", [history(name) for name in WORKLOADS]))
    effect = await recommend(plane, histories, "--whatif")
    sizes = {
        each["name"]: (each["recommended"] or each["current"])["request"]
        for each in (await recommend(plane, histories))["items"]
    }
    assert effect["gpusInUse"] == len(set(before.values()))
    assert effect["podsResized"]

    def resized(some: Iterable[str]) -> list[Object]:
        return [pod(name, sizes[workload(name)]) for name in some]

    ordered = sorted(before, key=lambda name: (-sizes[workload(name)], name))
    after = await made_anew(calls, resized(ordered))
    assert len(after) == len(before)
    assert len(set(after.values())) == effect["gpusRecommended"]
    fits = await placed(calls, resized(sorted(waiting)))
    assert {f"default/{name}" for name in fits} == set(effect["fitting"])

    any_order = await made_anew(calls, resized(chance.sample(ordered, len(ordered))))
    gpus = len(set(any_order.values()))
    print(
        f"{len(before)} pods on {effect['gpusInUse']} GPUs, {len(waiting)} wait; predicted "
        f"{effect['gpusRecommended']} GPUs, {len(fits)} fit; live {len(set(after.values()))}, "
        f"in random order {gpus}"
    )
    assert len(any_order) == len(before)
    assert gpus <= MORE_IN_RANDOM_ORDER * effect["gpusRecommended"]
