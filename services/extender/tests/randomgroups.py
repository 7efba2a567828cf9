"""Random sets of PodGroups, and when all that can be placed of one is."""

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from podgroupplane import UNITS, GroupCluster
from steadyclock import SteadyClock

NODES, GPUS = 3, 2
SHARES: Final = (20, 26, 40, 79)
HALF_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 4.0
"""Longer than a plan without binds is kept, and than the pause before a pod is sent back."""
SET_SECONDS: Final = 60.0
"""For groups that wait though they fit: nothing may change for long on a machine that stalls."""


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


def unplaced(
    groups: Iterable[RandomGroup], counts: Mapping[str, int], used: Mapping[str, int]
) -> list[RandomGroup]:
    """Groups that cannot stay as they are: half placed, or waiting though they fit.

    Args:
        groups: of a set.
        counts: bound pods of each.
        used: memory units that are given, by GPU.
    """
    gpus = [f"node-{node:05}/{gpu}" for node in range(NODES) for gpu in range(GPUS)]
    free = [UNITS - used.get(gpu, 0) for gpu in gpus]
    return [
        one
        for one in groups
        if 0 < counts[one.name] < one.minimum or (not counts[one.name] and one.fits(free))
    ]


async def settled(cluster: GroupCluster, groups: list[RandomGroup]) -> dict[str, int]:
    """Wait until nothing changes and no group needs to; how many pods of each group are bound then.

    Raises:
        AssertionError: a group was half placed for too long.
    """
    counts, half = {}, dict[str, float]()
    clock = SteadyClock()
    seconds = since = 0.0
    while seconds < SET_SECONDS:
        now = {one.name: len(await cluster.bound(one.name)) for one in groups}
        seconds = clock.tick()
        if now != counts:
            counts, since = now, seconds
        for one in groups:
            if not 0 < now[one.name] < one.minimum:
                half.pop(one.name, None)
            elif seconds - half.setdefault(one.name, seconds) > HALF_SECONDS:
                raise AssertionError(f"{one} is half placed: {now[one.name]} pods")
        quiet = seconds - since >= QUIET_SECONDS
        if quiet and not unplaced(groups, counts, await cluster.used()):
            break
        await asyncio.sleep(0.1)
    return counts
