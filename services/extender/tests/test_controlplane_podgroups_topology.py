"""PodGroups with the alpha gates: kube-scheduler tries a group on several sets of nodes in a cycle.

What the extender answered for one zone does not count for the next. A CompositePodGroup is several
PodGroups, of which the extender sees each by itself.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from podgroupplane import (
    GROUPS,
    UNITS,
    GroupCluster,
    group_cluster,
    group_plane,
    member,
    pod_group,
)

from environments import fakenodes
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

Object = dict[str, Any]
COMPOSITE_API: Final = "scheduling.k8s.io/v1alpha3"
COMPOSITES: Final = f"/apis/{COMPOSITE_API}/namespaces/default/compositepodgroups"
WORKLOAD: Final = {"workloadName": "work", "templateName": "part"}
ZONE: Final = "topology.kubernetes.io/zone"
SHARE: Final = 40


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with PodGroups, their topology and CompositePodGroups."""
    gates = ("TopologyAwareWorkloadScheduling", "CompositePodGroup")
    yield from group_plane(*gates, apis=(COMPOSITE_API,))


def zones(*sizes: int) -> list[Object]:
    """Nodes of two GPUs, in zones of so many nodes."""
    names = [f"zone-{zone}" for zone, size in enumerate(sizes) for _ in range(size)]
    items = list(fakenodes.nodes(len(names), gpus=2, units=UNITS))
    for item, name in zip(items, names, strict=True):
        item["metadata"]["labels"][ZONE] = name
    return items


async def create(cluster: GroupCluster, name: str, size: int, **spec: object) -> None:
    """A PodGroup of ``size`` pods, all of which it needs."""
    await cluster.calls.call("POST", GROUPS, pod_group(name, size, **spec))
    await cluster.add(*(member(name, number, SHARE) for number in range(size)))


async def test_a_group_goes_to_the_zone_that_has_room(plane: ControlPlane, tmp_path: Path) -> None:
    """Four pods in one zone: the first zone has two GPUs, the second four."""
    nodes = zones(1, 2)
    constraints = {"topology": [{"key": ZONE}]}
    async with group_cluster(plane, tmp_path, nodes) as cluster:
        await create(cluster, "zonal", 4, schedulingConstraints=constraints)
        await cluster.until_bound("zonal", 4)
        found = set((await cluster.bound("zonal")).values())
        assert found == {"node-00001", "node-00002"}
        assert await cluster.double() == []


async def test_of_two_zones_that_have_room_the_group_gets_one(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """kube-scheduler tries both and binds to the better, which may be the one it tried first."""
    constraints = {"topology": [{"key": ZONE}]}
    async with group_cluster(plane, tmp_path, zones(2, 2, 2)) as cluster:
        for name in ("first", "second", "third"):
            await create(cluster, name, 4, schedulingConstraints=constraints)
        for name in ("first", "second", "third"):
            await cluster.until_bound(name, 4)
        assert await cluster.double() == []


async def test_a_composite_group_does_no_harm(plane: ControlPlane, tmp_path: Path) -> None:
    """Two groups of two pods are bound together; with three of two on four GPUs none is."""
    async with group_cluster(plane, tmp_path, zones(1, 1)) as cluster:
        await composite(cluster, "large", 3)
        await composite(cluster, "small", 2)
        for number in range(2):
            await cluster.until_bound(f"small-{number}", 2)
        counts = [len(await cluster.bound(f"large-{number}")) for number in range(3)]
        assert counts == [0, 0, 0]
        assert await cluster.double() == []


async def composite(cluster: GroupCluster, name: str, groups: int) -> None:
    """A CompositePodGroup of so many PodGroups of two pods, all of which it needs."""
    body = {
        "apiVersion": COMPOSITE_API,
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": groups}},
            "workloadRef": WORKLOAD,
        },
    }
    await cluster.calls.call("POST", COMPOSITES, body)
    made = (
        create(
            cluster,
            f"{name}-{number}",
            2,
            parentCompositePodGroupName=name,
            workloadRef=WORKLOAD,
        )
        for number in range(groups)
    )
    await asyncio.gather(*made)
