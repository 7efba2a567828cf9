"""A set of random PodGroups is over once each is placed, or does not fit."""

import asyncio
from typing import cast

import pytest
import randomgroups
from podgroupplane import UNITS, GroupCluster
from randomgroups import GPUS, NODES, RandomGroup, settled, unplaced

GROUP = RandomGroup("one", 2, (40, 40, 40))
FULL = {f"node-{node:05}/{gpu}": UNITS for node in range(NODES) for gpu in range(GPUS)}
ONE_FREE = {**FULL, "node-00000/0": 0}


def test_a_group_that_fits_and_has_no_pod_bound_is_not_placed() -> None:
    """Its minimum of two pods needs two GPUs."""
    assert unplaced([GROUP], {"one": 0}, {}) == [GROUP]
    assert unplaced([GROUP], {"one": 0}, ONE_FREE) == []
    assert unplaced([GROUP], {"one": 0}, FULL) == []


def test_a_group_with_fewer_pods_than_its_minimum_is_not_placed() -> None:
    """Whether the others fit or not."""
    assert unplaced([GROUP], {"one": 1}, FULL) == [GROUP]
    assert unplaced([GROUP], {"one": 2}, {}) == []
    assert unplaced([GROUP], {"one": 3}, {}) == []


class LateCluster:
    """Binds nothing for many polls, and then both pods of the group.

    Attributes:
        polls: how often its pods were read.
    """

    def __init__(self, polls: int) -> None:
        self._bound_at, self.polls = polls, 0

    async def bound(self, group: str) -> dict[str, str]:
        self.polls += 1
        return dict.fromkeys(("one-0", "one-1"), "node-00000") if self._bound() else {}

    async def used(self) -> dict[str, int]:
        return {"node-00000/0": 40, "node-00000/1": 40} if self._bound() else {}

    def _bound(self) -> bool:
        return self.polls >= self._bound_at


class HalfCluster(LateCluster):
    """Binds one pod of the group."""

    async def bound(self, group: str) -> dict[str, str]:
        self.polls += 1
        return {"one-0": "node-00000"}


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll takes a tenth of a second, and nothing waits."""
    no_pause = asyncio.sleep

    class Polls:
        seconds = 0.0

        def tick(self) -> float:
            self.seconds += 0.1
            return self.seconds

    monkeypatch.setattr(randomgroups, "SteadyClock", Polls)
    monkeypatch.setattr(randomgroups.asyncio, "sleep", lambda seconds: no_pause(0))


async def test_quiet_is_no_end_while_a_group_waits_that_fits() -> None:
    """kube-scheduler or the extender may not have had a turn."""
    cluster = LateCluster(polls=300)
    assert await settled(cast(GroupCluster, cluster), [GROUP]) == {"one": 2}


async def test_the_wait_for_a_group_that_is_never_placed_ends() -> None:
    """Then the set fails: it is not the last word that nothing changes."""
    cluster = LateCluster(polls=10**9)
    assert await settled(cast(GroupCluster, cluster), [GROUP]) == {"one": 0}
    assert cluster.polls == pytest.approx(randomgroups.SET_SECONDS * 10, abs=2)


async def test_a_group_that_is_half_placed_for_more_than_ten_seconds_is_an_error() -> None:
    """That is what the product promises never to happen."""
    cluster = HalfCluster(polls=0)
    with pytest.raises(AssertionError, match="is half placed: 1 pods"):
        await settled(cast(GroupCluster, cluster), [GROUP])
    assert cluster.polls == pytest.approx(randomgroups.HALF_SECONDS * 10, abs=3)
