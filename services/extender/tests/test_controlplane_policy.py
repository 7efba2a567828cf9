"""The GPU policy decides with a real kube-scheduler, and a pod's own soft constraints still count.

The scheduler has the profile of the chart. Every case has nodes of its own, by a label.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from chartconfig import chart_config
from planes import Source, plane, scheduling
from running import Running

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
PODS: Final = "/api/v1/namespaces/default/pods"
NODES, GPUS, UNITS = 20, 2, 16
SCHEDULER: Final = "policy"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
SECONDS: Final = 180


@pytest.fixture
async def calls(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ApiCalls]:
    """An API server with the extender and a scheduler as the chart configures it."""
    async with ApiCalls.to(plane) as session:
        config = await chart_config(plane, session)
        await session.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        await session.call("DELETE", "/api/v1/nodes")
        nodes = fakenodes.nodes(NODES, gpus=GPUS, units=UNITS)
        await session.create("/api/v1/nodes", map(zoned, nodes))
        async with Running(Source(plane), tmp_path, bind_deadline=30) as extender:
            await extender.ready()
            async with scheduling(plane, extender, SCHEDULER, config):
                yield session


def zoned(node: Object) -> Object:
    """The last node is in a zone of its own."""
    last = node["metadata"]["name"] == f"node-{NODES - 1:05}"
    node["metadata"]["labels"]["zone"] = "far" if last else "near"
    return node


def pod(name: str, units: int = 4, **spec: Any) -> Object:
    """A pod of one application."""
    item = fakenodes.pod(name, units, scheduler=SCHEDULER)
    item["metadata"]["labels"] = {"app": "one"}
    item["spec"] |= spec
    return item


async def nodes_of(calls: ApiCalls, pods: Iterable[Object]) -> list[str]:
    """Create pods at once; the nodes they are bound to."""
    items = list(pods)
    names = {item["metadata"]["name"] for item in items}
    async with BoundCounter(calls, prefix="") as counter:
        await calls.create(PODS, items)
        await counter.wait(len(items), seconds=SECONDS)
    found: Object = msgspec.json.decode(await calls.call("GET", PODS))
    return [one["spec"]["nodeName"] for one in found["items"] if one["metadata"]["name"] in names]


async def test_binpack_opens_a_node_only_when_the_others_are_full(calls: ApiCalls) -> None:
    """A burst of equal pods of one application fills nodes one after the other."""
    found = Counter(await nodes_of(calls, (pod(f"pack-{number:02}") for number in range(60))))
    per_node = GPUS * UNITS // 4
    assert len(found) == -(-60 // per_node)


async def test_preferences_of_the_pod_count_before_the_policy(calls: ApiCalls) -> None:
    """Of node affinity and of anti-affinity; binpack would have chosen the used node."""
    (used,) = await nodes_of(calls, [pod("first", nodeSelector={"zone": "near"})])
    far = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["far"]}]}
    near = {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": far}]}}
    assert await nodes_of(calls, [pod("far", affinity=near)]) == [f"node-{NODES - 1:05}"]
    same = {"labelSelector": {"matchLabels": {"app": "one"}}}
    term = {**same, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}
    (alone,) = await nodes_of(calls, [pod("apart", affinity=apart)])
    assert alone not in {used, f"node-{NODES - 1:05}"}


async def test_a_node_to_be_avoided_stays_empty_while_others_have_room(calls: ApiCalls) -> None:
    """PreferNoSchedule counts before the policy as well."""
    (used,) = await nodes_of(calls, [pod("first")])
    change = {
        "metadata": {"labels": {"changed": "yes"}},
        "spec": {"taints": [{"key": "old", "effect": "PreferNoSchedule"}]},
    }
    await calls.call("PATCH", f"/api/v1/nodes/{used}", change, kind=MERGE_PATCH)
    # Bound once the scheduler has the changed node.
    assert await nodes_of(calls, [pod("probe", nodeSelector={"changed": "yes"})]) == [used]
    assert used not in await nodes_of(calls, [pod("second")])
