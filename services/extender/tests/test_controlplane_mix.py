"""`gpushare whatif` places pods by the mix that the extender learned, deleted pods included.

Random pods come one by one and half of them are deleted now and then, as on a cluster of two
machines. Right before each comes, the command predicts its place from the API server alone.
``GPUSHARE_MIX_PODS`` sets the number of pods, ``GPUSHARE_MIX_SEED`` which ones.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from chartconfig import SPACE, chart_config
from planes import Source, plane, scheduling
from running import Running

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import ControlPlane
from gpucore.workload.mix_in_use import KEY, decode_mix, encode_mix
from gpucore.workload.pod_mix import PodMix

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
ENVIRONMENT: Final = dict(os.environ)  # before a fixture takes our settings away
COUNT: Final = int(ENVIRONMENT.get("GPUSHARE_MIX_PODS", "100"))
SEED: Final = int(ENVIRONMENT.get("GPUSHARE_MIX_SEED", "18"))
PODS: Final = "/api/v1/namespaces/default/pods"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{SPACE}/deployments/{SPACE}-gpushare-scheduler"
MIX: Final = f"{SPACE}/{SPACE}-gpushare-extender-mix"
CONFIG_MAP: Final = f"/api/v1/namespaces/{SPACE}/configmaps/{SPACE}-gpushare-extender-mix"
SCHEDULER: Final = "gpushare-scheduler"
POLICIES: Final = ("", "binpack", "spread", "fragmentation")
SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16)
UNITS: Final = 16
MOST_PODS: Final = 24
LEAST_STEADY: Final = 0.8
"""Part of the pods during whose placement no new mix came into use."""
SECONDS: Final = 120
LOOK_SECONDS: Final = 0.1
Place = tuple[str, tuple[int, ...]]
"""Node and GPUs of a pod."""


def random_pod(name: str, chance: random.Random) -> Object:
    """A pod that fits an empty GPU."""
    item = fakenodes.pod(name, chance.choice(SIZES), scheduler=SCHEDULER)
    if chance.random() < 0.2:
        limits = item["spec"]["containers"][0]["resources"]["limits"]
        limits["aliyun.com/gpu-core.percentage"] = str(chance.choice((10, 50, 100)))
    policy = chance.choice(POLICIES)
    item["metadata"]["annotations"] = {"gpushare/policy": policy} if policy else {}
    return item


def machines() -> Iterator[Object]:
    """One of eight GPUs and one of two."""
    large, small = (next(fakenodes.nodes(1, gpus=gpus, units=UNITS)) for gpus in (8, 2))
    text = json.dumps(small).replace("node-00000", "node-00001")
    return iter((large, json.loads(text)))


async def read(calls: ApiCalls, path: str) -> Object:
    """An object or a list."""
    found: Object = msgspec.json.decode(await calls.call("GET", path))
    return found


class Cluster(NamedTuple):
    """An extender that learns, and how the command reaches the API server."""

    plane: ControlPlane
    calls: ApiCalls
    extender: Running

    async def mix_in_use(self) -> PodMix | None:
        """The mix of the extender, once the ConfigMap has it."""
        async with asyncio.timeout(SECONDS):
            while True:
                mix = self.extender.state.mix.mix
                text = (await read(self.calls, CONFIG_MAP)).get("data", {}).get(KEY)
                kinds = decode_mix(text).kinds if text else ()
                if kinds == decode_mix(encode_mix(mix, 0)).kinds:
                    return mix
                await asyncio.sleep(LOOK_SECONDS)

    async def predicted(self, pod: Object) -> tuple[PodMix | None, Place | None, list[str]]:
        """The mix in use, where the command places a pod by it, and its notes."""
        while True:
            mix = await self.mix_in_use()
            place, notes = await self._predicted(pod)
            if self.extender.state.mix.mix is mix:
                return mix, place, notes

    async def _predicted(self, pod: Object) -> tuple[Place | None, list[str]]:
        path = self.extender.folder / "pod.json"
        path.write_text(json.dumps(pod))
        command = [Path(sys.executable).parent / "gpushare", "whatif", "-f", path, "-o", "json"]
        command += [f"--kubeconfig={self.plane.kubeconfig}"]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode in {0, 1}, done.stderr  # 1: the pod does not fit
        document = json.loads(done.stdout)
        [item] = document["items"]
        place = (item["node"], tuple(sorted(map(int, item["gpus"]))))
        return (place if item["fits"] else None), document["notes"]

    async def placed(self, pod: Object) -> Place:
        """Where a pod goes once it is created."""
        name = pod["metadata"]["name"]
        async with BoundCounter(self.calls, prefix=name) as counter:
            await self.calls.call("POST", PODS, pod)
            await counter.wait(1, seconds=SECONDS)
        found = await read(self.calls, f"{PODS}/{name}")
        text = found["metadata"]["annotations"]["scheduler.framework.gpushare.allocation"]
        gpus = {int(index) for box in json.loads(text).values() for index in box}
        return found["spec"]["nodeName"], tuple(sorted(gpus))

    async def names(self) -> list[str]:
        """Of the pods that exist."""
        items = (await read(self.calls, PODS))["items"]
        return [item["metadata"]["name"] for item in items]

    async def make_room(self, chance: random.Random, most: int) -> None:
        """Delete half of the pods where they are many."""
        names = await self.names()
        if len(names) >= most:
            for name in chance.sample(names, (len(names) + 1) // 2):
                await self.calls.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


@pytest.fixture
async def cluster(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The chart's ConfigMap, and a pod with its extender and flags, whose process is this one."""
    async with ApiCalls.to(plane) as calls:
        config = await chart_config(plane, calls)
        await calls.create("/api/v1/nodes", machines())
        template = (await read(calls, DEPLOYMENT))["spec"]["template"]
        labels = {"labels": template["metadata"]["labels"], "name": "scheduler-0"}
        spec = template["spec"] | {"schedulerName": "none"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": labels, "spec": spec}
        await calls.call("POST", f"/api/v1/namespaces/{SPACE}/pods", pod)
        settings = {"percentage_of_nodes": config["percentageOfNodesToScore"], "mix_history": MIX}
        async with Running(Source(plane), tmp_path, bind_deadline=30, **settings) as extender:
            await extender.ready()
            async with scheduling(plane, extender, SCHEDULER, config):
                yield Cluster(plane, calls, extender)


async def test_pods_go_where_what_if_places_them_by_the_mix_in_use(cluster: Cluster) -> None:
    """Those with the policy `fragmentation` too, although the mix has pods that are gone."""
    chance = random.Random(SEED)
    steady = created = number = 0
    notes: list[str] = []
    while created < COUNT:
        pod, number = random_pod(f"one-{number:03}", chance), number + 1
        mix, expected, notes = await cluster.predicted(pod)
        if expected is None:
            await cluster.make_room(chance, 1)
            continue
        found = await cluster.placed(pod)
        created += 1
        if cluster.extender.state.mix.mix is mix:
            steady += 1
            assert found == expected, pod
        await cluster.make_room(chance, MOST_PODS)
    history = cluster.extender.state.mix.history
    gone = len(history) - len(await cluster.names())
    print(f"{steady} of {created} placed while the mix stayed; {gone} pods of the mix are gone")
    assert steady >= LEAST_STEADY * created
    assert gone >= COUNT // 3
    assert not [note for note in notes if "mix" in note]
    assert cluster.extender.state.mix.mix is not None
