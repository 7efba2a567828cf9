"""A burst of pods packs a live cluster as the offline replay of the same policy does.

``GPUSHARE_TRACE`` names a folder with the node list and the default pod list of the public trace of
2023 (``openb_*.csv``): 2,000 of its pods with GPUs then go to nodes of it that can hold ten in
eleven of them, and the extender learns the mix of pods while they come. Without it, nodes and pods
are drawn here, and the extender learned the mix from equal pods before: of so few pods, the moment
of learning would decide the result (129.7 to 131.3 GPUs in seven runs). ``GPUSHARE_PERCENTAGE`` is
the percentage of nodes that kube-scheduler evaluates for a pod; without it the chart's.

On a loaded machine a bind can reach the extender after the next pod was filtered; that pod may then
be refused when it is bound, and tries again behind others. In the replay, moving up to four of the
150 pods changes the GPUs by up to two per cent, so the test allows that much after such a refusal;
the policy that spreads pods allocates nine per cent fewer.
"""

import asyncio
import csv
import os
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import pytest
from chartconfig import chart_config
from planes import Source, scheduling
from running import Running, until

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane
from gpucore.simulate.replay import replay
from gpucore.simulate.traces import TraceNode, TracePod
from gpuextender import metrics

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

Object = dict[str, Any]
ENVIRONMENT: Final = dict(os.environ)  # before a fixture takes our settings away
TRACE: Final = ENVIRONMENT.get("GPUSHARE_TRACE", "")
PODS: Final = "/api/v1/namespaces/default/pods"
PERCENTAGE: Final = ENVIRONMENT.get("GPUSHARE_PERCENTAGE", "")
UNITS: Final = 1000
"""Of a GPU, as in the trace."""
POLICIES: Final = ("binpack", "fragmentation")
COUNT: Final = 2000 if TRACE else 150
REQUESTED: Final = 1.1
"""Times the GPUs of the nodes."""
SCHEDULER: Final = "packing"
QUIET_LOOKS: Final = 16
"""Half a second apart and without a bind: then the rest, once refused, stays so."""
LIMIT_SECONDS: Final = 540.0


def cluster() -> tuple[list[TraceNode], list[TracePod]]:
    """Nodes by name, and the pods in the order in which they come."""
    chance = random.Random(18)
    known = traced(Path(TRACE)) if TRACE else drawn(chance)
    pods = chance.sample(known[1], COUNT)
    wanted = sum(pod.milli for pod in pods) / REQUESTED
    nodes: list[TraceNode] = []
    for node in chance.sample(known[0], len(known[0])):
        if sum(one.gpus for one in nodes) * UNITS < wanted:
            nodes.append(node)
    return sorted(nodes, key=lambda node: node.name), pods


def traced(folder: Path) -> tuple[list[TraceNode], list[TracePod]]:
    """The trace's nodes, and its pods with GPUs."""
    with (folder / "openb_node_list_gpu_node.csv").open() as file:
        nodes = [
            TraceNode(r["sn"], int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), r["model"])
            for r in csv.DictReader(file)
        ]
    with (folder / "openb_pod_list_default.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"])]
    return nodes, [
        TracePod(
            row["name"],
            *(int(row[key]) for key in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")),
            models=frozenset(filter(None, row["gpu_spec"].split("|"))),
        )
        for row in rows
    ]


def drawn(chance: random.Random) -> tuple[list[TraceNode], list[TracePod]]:
    """Nodes and pods of several sizes."""
    nodes = [TraceNode(f"node-{n:03}", 64000, 262144, chance.choice((2, 4, 8))) for n in range(60)]
    shares = [(1, milli) for milli in (100, 250, 330, 460, 500, 700)]
    sizes = [*shares, *((gpus, UNITS) for gpus in (1, 1, 2, 4))]
    pods = [
        TracePod(f"pod-{n:04}", chance.choice((1000, 4000, 12000)), 8192, *chance.choice(sizes))
        for n in range(COUNT)
    ]
    return nodes, pods


def node_object(node: TraceNode) -> Object:
    """The node as a device plugin would have left it, for shares and exclusive GPUs."""
    (item,) = fakenodes.nodes(1, gpus=node.gpus, units=UNITS)
    item["metadata"]["name"] = node.name
    item["metadata"]["labels"] |= {"gputopology": "true", "model": node.model or "any"}
    text = fakenodes.inventory(node.name, node.gpus, UNITS)
    text = text.replace("A100-SXM4-80GB", node.model or "any")
    item["metadata"]["annotations"] = {"gpushare/inventory": text}
    amounts = item["status"]["allocatable"]
    amounts |= {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi"}
    amounts["aliyun.com/gpu"] = str(node.gpus)
    return item


def pod_object(pod: TracePod) -> Object:
    """The pod of a user who wants this."""
    item = fakenodes.pod(pod.name, pod.gpu_milli, scheduler=SCHEDULER)
    limits = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.gpu_milli == UNITS:
        limits["aliyun.com/gpu"] = str(pod.gpus)
    else:
        limits["aliyun.com/gpu-mem"] = str(pod.milli)
    item["spec"]["containers"][0]["resources"]["limits"] = limits
    if pod.models:
        one = {"key": "model", "operator": "In", "values": sorted(pod.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        item["spec"]["affinity"] = {"nodeAffinity": required}
    return item


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own for each policy: its nodes and pods are many to delete."""
    with control_plane() as one:
        yield one


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    """The default policy of the extender, and that of the replay."""
    return str(request.param)


@pytest.fixture
async def calls(plane: ControlPlane, tmp_path: Path, policy: str) -> AsyncIterator[ApiCalls]:
    """An API server with an extender, and a scheduler as the chart configures it."""
    async with ApiCalls.to(plane) as session:
        scheduler = {"percentageOfNodesToScore": int(PERCENTAGE)} if PERCENTAGE else {}
        config = await chart_config(plane, session, scheduler=scheduler)
        nodes, pods = cluster()
        await session.create("/api/v1/nodes", map(node_object, nodes))
        if not TRACE:
            await create_in_order(session, pods)
        async with Running(Source(plane), tmp_path, bind_deadline=30, policy=policy) as extender:
            await extender.ready()
            if not TRACE:
                await until("the mix is learned", lambda: extender.state.mix.mix)
                assert len(extender.state.mix.history) == COUNT
                await session.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
            async with scheduling(plane, extender, SCHEDULER, config):
                yield session


async def bound_and_refused(calls: ApiCalls) -> tuple[set[str], set[str]]:
    """Names of the pods with a node, and of those for which there was none."""
    items = msgspec.json.decode(await calls.call("GET", PODS))["items"]
    bound = {one["metadata"]["name"] for one in items if one["spec"].get("nodeName")}
    tried = {one["metadata"]["name"] for one in items if one["status"].get("conditions")}
    return bound, tried - bound


async def settled(calls: ApiCalls, pods: Sequence[TracePod]) -> set[str]:
    """The pods that are bound once all others were refused and nothing is bound any more."""
    names: set[str] = set()
    begin, quiet = monotonic(), 0
    while quiet < QUIET_LOOKS and len(names) < len(pods):
        assert monotonic() - begin < LIMIT_SECONDS
        await asyncio.sleep(0.5)
        found, refused = await bound_and_refused(calls)
        still = found == names and len(found) + len(refused) == len(pods)
        names, quiet = found, quiet + 1 if still else 0
    return names


async def create_in_order(calls: ApiCalls, pods: Iterable[TracePod]) -> None:
    """One after the other, as fast as the API server takes them."""
    for pod in pods:
        await calls.call("POST", PODS, pod_object(pod))


def refused_binds() -> float:
    """How many binds extenders of this process refused because the GPUs were taken."""
    labels = {"outcome": "refused"}
    return metrics.REGISTRY.get_sample_value("gpushare_extender_binds_total", labels) or 0.0


async def test_a_burst_packs_as_the_replay_of_its_policy(calls: ApiCalls, policy: str) -> None:
    """Within one per cent of the GPUs of the replay, two if timing moved a pod in the queue."""
    nodes, pods = cluster()
    refused_before = refused_binds()
    offline = replay(nodes, pods, policy, workload=pods, pick=lambda _: 0, target=100.0)
    await create_in_order(calls, pods)
    names = await settled(calls, pods)
    live = sum(pod.milli for pod in pods if pod.name in names) / UNITS
    print(
        f"{policy}: {len(nodes)} nodes, {offline.gpus} GPUs, {len(pods)} pods, "
        f"{offline.requested:.0f} GPUs: "
        f"replay {offline.placed:.1f} GPUs ({offline.failed_pods} pods refused), "
        f"live {live:.1f} ({len(pods) - len(names)})"
    )
    allowed = 0.02 if refused_binds() > refused_before else 0.01
    assert abs(live - offline.placed) <= allowed * offline.placed
