"""What-if names the node and the GPUs that pods get from kube-scheduler and the extender.

``GPUSHARE_WHATIF_PODS`` sets the number of random pods, half of them one
by one, half in Deployments.
"""

import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from chartconfig import chart_config
from planes import Source, plane, scheduling
from running import Running

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
Place = tuple[str, tuple[int, ...]]
"""Node and GPUs of a pod."""
ENVIRONMENT: Final = dict(os.environ)  # before a fixture takes our settings away
COUNT: Final = int(ENVIRONMENT.get("GPUSHARE_WHATIF_PODS", "60"))
PODS: Final = "/api/v1/namespaces/default/pods"
NODES, GPUS, UNITS = 150, 4, 16
SCHEDULER: Final = "whatif"
POLICIES: Final = ("", "binpack", "spread", "fragmentation")
ONE_BY_ONE, DEPLOYMENTS = 0.95, 0.90
SECONDS: Final = 180


class Manifests:
    """Random pods: sizes, policies, node labels and requests besides GPUs."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pod(self, name: str) -> Object:
        """A pod that fits an empty node."""
        pick = self._random
        item = fakenodes.pod(name, pick.choice((1, 2, 3, 4, 6, 8, 12, 16)), scheduler=SCHEDULER)
        limits = item["spec"]["containers"][0]["resources"]["limits"]
        limits["cpu"] = pick.choice(("10m", "4", "30"))
        if pick.random() < 0.2:
            limits["aliyun.com/gpu-core.percentage"] = str(pick.choice((10, 50, 100)))
        if pick.random() < 0.25:
            item["spec"]["nodeSelector"] = {"zone": pick.choice("abc")}
        policy = pick.choice(POLICIES)
        item["metadata"]["annotations"] = {"gpushare/policy": policy} if policy else {}
        item["metadata"]["labels"] = {"app": name}
        return item

    def replicas(self) -> int:
        """Of a Deployment."""
        return self._random.randint(2, 6)


def nodes() -> Iterator[Object]:
    """Equal nodes in three zones."""
    for number, item in enumerate(fakenodes.nodes(NODES, gpus=GPUS, units=UNITS)):
        item["metadata"]["labels"]["zone"] = "abc"[number % 3]
        yield item


def deployment(pod: Object, replicas: int) -> Object:
    """The object of which a controller would make these pods."""
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    spec = {"replicas": replicas, "template": template}
    return {"kind": "Deployment", "metadata": {"name": pod["metadata"]["name"]}, "spec": spec}


async def predicted(extender: Running, manifest: Object) -> list[tuple[Place, bool]]:
    """Where the pods of a manifest would go by /api/v1/whatif, and whether that is certain."""
    code, found = await extender.post("/api/v1/whatif", {"manifests": [manifest]})
    assert code == 200, found
    return [
        ((item["node"], tuple(sorted(map(int, item["gpus"] or ())))), not item["likely"])
        for item in found["items"]
        if item["fits"]
    ]


async def placed(calls: ApiCalls, prefix: str, pods: Sequence[Object]) -> list[Place]:
    """Where the pods go once they are created; their names begin with ``prefix``."""
    names = [item["metadata"]["name"] for item in pods]
    async with BoundCounter(calls, prefix=prefix) as counter:
        await calls.create(PODS, pods)
        await counter.wait(len(pods), seconds=SECONDS)
    return [place(await read(calls, name)) for name in names]


async def read(calls: ApiCalls, name: str) -> Object:
    """A pod as it is."""
    found: Object = msgspec.json.decode(await calls.call("GET", f"{PODS}/{name}"))
    return found


def place(pod: Object) -> Place:
    """Node and GPUs that a bound pod was given."""
    text = pod["metadata"]["annotations"]["scheduler.framework.gpushare.allocation"]
    gpus = {int(index) for box in json.loads(text).values() for index in box}
    return pod["spec"]["nodeName"], tuple(sorted(gpus))


@pytest.fixture
async def cluster(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[tuple[ApiCalls, Running]]:
    """Used nodes, the extender, and a kube-scheduler with the chart's profile."""
    async with ApiCalls.to(plane) as calls:
        config = await chart_config(plane, calls)
        await calls.create("/api/v1/nodes", nodes())
        held = fakenodes.running(NODES // 2, NODES, gpus=GPUS, units=1, kinds=8)
        await calls.create(PODS, held)
        settings = {"bind_deadline": 30, "percentage_of_nodes": config["percentageOfNodesToScore"]}
        async with Running(Source(plane), tmp_path, **settings) as extender:
            await extender.ready()
            async with scheduling(plane, extender, SCHEDULER, config):
                yield calls, extender


async def one_by_one(calls: ApiCalls, extender: Running, pods: Iterable[Object]) -> int:
    """How many of the pods get the place that was predicted right before."""
    right = 0
    for pod in pods:
        ((expected, certain),) = await predicted(extender, pod)
        (found,) = await placed(calls, pod["metadata"]["name"], [pod])
        assert certain, pod
        right += expected == found
        if expected != found:
            print(f"{pod}: what-if {expected}, cluster {found}")
    return right


async def replicas(calls: ApiCalls, extender: Running, pod: Object, count: int) -> int:
    """How many pods of a Deployment get one of the places that were predicted for it."""
    expected = [one for one, _ in await predicted(extender, deployment(pod, count))]
    name = pod["metadata"]["name"]
    names = [f"{name}-{number}" for number in range(count)]
    pods = [{**pod, "metadata": {**pod["metadata"], "name": each}} for each in names]
    found = await placed(calls, f"{name}-", pods)
    if sorted(expected) != sorted(found):
        print(f"{pod} x {count}: what-if {sorted(expected)}, cluster {sorted(found)}")
    return (Counter(expected) & Counter(found)).total()


async def test_what_if_agrees_with_the_cluster(cluster: tuple[ApiCalls, Running]) -> None:
    """Random pods, one by one and as Deployments, under three policies."""
    make, half = Manifests(18), COUNT // 2
    right = await one_by_one(*cluster, (make.pod(f"one-{number:03}") for number in range(half)))
    print(f"one by one: {right} of {half}")
    assert right >= ONE_BY_ONE * half
    agreed = created = 0
    while created < half:
        count = make.replicas()
        agreed += await replicas(*cluster, make.pod(f"many-{created:03}"), count)
        created += count
    print(f"Deployments: {agreed} of {created}")
    assert agreed >= DEPLOYMENTS * created
