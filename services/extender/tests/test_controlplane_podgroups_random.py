"""Random sets of PodGroups with a real kube-scheduler: no group is ever half placed for long.

``GPUSHARE_GROUP_SETS`` sets the number of sets; 50 are the bar.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from podgroupplane import UNITS, GroupCluster, group_cluster, group_plane
from randomgroups import GPUS, NODES, groups_of, settled, unplaced

from environments import fakenodes
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SETS: Final = int(os.environ.get("GPUSHARE_GROUP_SETS", "8"))


async def check_set(cluster: GroupCluster, seed: int) -> None:
    """One set: safety at any time, and in the end no group waits that fits."""
    groups = groups_of(seed)
    made = (cluster.create_group(one.name, one.minimum, *one.sizes) for one in groups)
    await asyncio.gather(*made)
    counts = await settled(cluster, groups)
    used = await cluster.used()
    assert all(units <= UNITS for units in used.values()), (seed, used)
    assert unplaced(groups, counts, used) == [], (seed, counts, used)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with PodGroups."""
    yield from group_plane()


async def test_random_groups_are_placed_whole_or_not_at_all(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Each set in turn on the same nodes; the groups of a set come at once."""
    nodes = fakenodes.nodes(NODES, gpus=GPUS, units=UNITS)
    async with group_cluster(plane, tmp_path, nodes) as cluster:
        for seed in range(SETS):
            await check_set(cluster, seed)
            await cluster.clear()
            await asyncio.sleep(0.5)
    print(f"{SETS} of {SETS} sets of groups were placed whole or not at all")
