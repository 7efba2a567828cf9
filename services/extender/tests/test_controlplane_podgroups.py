"""kube-scheduler places PodGroups in one cycle, and the extender gives each pod a place of its own.

Each node has two GPUs of 79 units, so it fits two pods of 40 units; kube-scheduler counts 158 units
and believes in three.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from podgroupplane import group_cluster, group_plane

from environments import fakenodes
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

GPUS, UNITS, SHARE = 2, 79, 40


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with PodGroups."""
    yield from group_plane()


async def test_a_group_larger_than_the_free_gpus_waits_whole_until_one_is_free(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Five pods where four fit: none is bound; with a third node all are."""
    nodes = list(fakenodes.nodes(3, gpus=GPUS, units=UNITS))
    async with group_cluster(plane, tmp_path, nodes[:2]) as cluster:
        await cluster.create_group("five", 5, *[SHARE] * 5)
        message = await cluster.refused("five")
        assert "capacity for 4" in message or "minCount" in message
        assert await cluster.bound("five") == {}
        await cluster.calls.call("POST", "/api/v1/nodes", nodes[2])
        await cluster.until_bound("five", 5)
        await cluster.calls.call("DELETE", f"/api/v1/nodes/{nodes[2]['metadata']['name']}")
