"""Random sets of PodGroups with a real kube-scheduler: no group is ever half placed for long.

``GPUSHARE_GROUP_SETS`` sets the number of sets; 50 are the bar.
"""

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import pytest
from podgroupplane import UNITS, GroupCluster, group_cluster, group_plane

from environments import fakenodes
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SETS: Final = int(os.environ.get("GPUSHARE_GROUP_SETS", "8"))
HALF_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 4.0
"""Longer than a plan without binds is kept, and than the pause before a pod is sent back."""
SET_SECONDS: Final = 60.0
NODES, GPUS = 3, 2
SHARES: Final = (20, 26, 40, 79)


class RandomGroup(msgspec.Struct, frozen=True):
    """A group of pods of these sizes."""

    name: str
    minimum: int
    sizes: tuple[int, ...]

    def fits(self, free: list[int]) -> bool:
        """Whether its minimum certainly fits; only for pods of one size."""
        size = self.sizes[0]
        return set(self.sizes) == {size} and sum(one // size for one in free) >= self.minimum


def groups_of(seed: int) -> list[RandomGroup]:
    """Two to four groups; some have pods of several sizes, some more pods than they need."""
    dice = random.Random(seed)
    found = []
    for number in range(dice.randint(2, 4)):
        count, mixed = dice.randint(2, 6), dice.random() < 0.3
        size = dice.choice(SHARES)
        sizes = tuple(dice.choice(SHARES) if mixed else size for _ in range(count))
        minimum = count if dice.random() < 0.6 else dice.randint(2, count)
        found.append(RandomGroup(f"set{seed}-{number}", minimum, sizes))
    return found


async def settled(cluster: GroupCluster, groups: list[RandomGroup]) -> dict[str, int]:
    """Wait until nothing changes; how many pods of each group are bound then.

    Raises:
        AssertionError: a group was half placed for too long.
    """
    counts, half = {}, dict[str, float]()
    end = monotonic() + SET_SECONDS
    since = monotonic()
    while monotonic() < end and monotonic() - since < QUIET_SECONDS:
        now = {one.name: len(await cluster.bound(one.name)) for one in groups}
        if now != counts:
            counts, since = now, monotonic()
        for one in groups:
            if not 0 < now[one.name] < one.minimum:
                half.pop(one.name, None)
            elif monotonic() - half.setdefault(one.name, monotonic()) > HALF_SECONDS:
                raise AssertionError(f"{one} is half placed: {now[one.name]} pods")
        await asyncio.sleep(0.1)
    return counts


async def check_set(cluster: GroupCluster, seed: int) -> None:
    """One set: safety at any time, and in the end no group waits that fits."""
    groups = groups_of(seed)
    made = (cluster.create_group(one.name, one.minimum, *one.sizes) for one in groups)
    await asyncio.gather(*made)
    counts = await settled(cluster, groups)
    used = await cluster.used()
    assert all(units <= UNITS for units in used.values()), (seed, used)
    gpus = [f"node-{node:05}/{gpu}" for node in range(NODES) for gpu in range(GPUS)]
    free = [UNITS - used.get(gpu, 0) for gpu in gpus]
    for one in groups:
        assert counts[one.name] == 0 or counts[one.name] >= one.minimum, (seed, one, counts)
        assert counts[one.name] or not one.fits(free), (seed, one, counts, used)


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
