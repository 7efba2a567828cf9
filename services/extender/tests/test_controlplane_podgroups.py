"""kube-scheduler places PodGroups in one cycle, and the extender gives each pod a place of its own.

Each node has two GPUs of 79 units, so it fits two pods of 40 units; kube-scheduler counts 158 units
and believes in three.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from podgroupplane import SCHEDULER, GroupCluster, always, group_cluster, group_plane, member

from environments import fakenodes
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

GPUS, UNITS, SHARE = 2, 79, 40
HALF_SECONDS = 10.0
"""By a steady clock: a stalled machine places nothing."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with PodGroups."""
    yield from group_plane()


def nodes(count: int) -> list[dict[str, object]]:
    """Nodes that fit two pods each."""
    return list(fakenodes.nodes(count, gpus=GPUS, units=UNITS))


def alone(name: str) -> dict[str, object]:
    """A pod of no group."""
    return fakenodes.pod(name, SHARE, scheduler=SCHEDULER)


async def until_alone_bound(cluster: GroupCluster, *names: str) -> None:
    """Wait until these pods have a node."""
    for _ in range(600):
        found = {
            one["metadata"]["name"] for one in await cluster.pods() if "nodeName" in one["spec"]
        }
        if found.issuperset(names):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{names} are not bound")


async def test_a_group_that_lacks_one_gpu_waits_whole_until_it_is_free(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Five pods and four free GPUs: none is bound; once a pod on the fifth GPU ends, all are."""
    async with group_cluster(plane, tmp_path, nodes(3)) as cluster:
        await cluster.add(alone("held-0"), alone("held-1"))
        await until_alone_bound(cluster, "held-0", "held-1")
        await cluster.create_group("five", 5, *[SHARE] * 5)
        message = await cluster.refused("five")
        assert "minCount (5) cannot be satisfied" in message
        assert await cluster.bound("five") == {}
        await cluster.delete("held-0")
        assert await cluster.until_bound("five", 5) < HALF_SECONDS
        assert await cluster.double() == []


async def test_a_group_with_a_smaller_minimum_gets_the_gpus_that_are_free(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Six pods of which three must run: four are bound at once, the others when GPUs are free."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.create_group("some", 3, *[SHARE] * 6)
        await cluster.until_bound("some", 4)
        first, second, *_ = await cluster.bound("some")
        await cluster.delete(first)
        await cluster.delete(second)
        await cluster.until_bound("some", 4)
        assert await cluster.double() == []


async def test_a_pod_that_fits_no_gpu_keeps_no_other_pod_from_its_place(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """kube-scheduler tries the pod of two GPUs' memory first, and goes on with the others."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.create_group("large", 3, 2 * SHARE, SHARE, SHARE, SHARE)
        assert await cluster.until_bound("large", 3) < HALF_SECONDS
        assert "large-0" not in await cluster.bound("large")
        assert await cluster.double() == []


async def test_pods_of_one_group_that_need_different_nodes_are_placed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Three pods fit, each on the node that its selector names."""
    async with group_cluster(plane, tmp_path, nodes(3)) as cluster:
        await cluster.create_group("pinned", 3)
        pods = [member("pinned", number, SHARE) for number in range(3)]
        for number, item in enumerate(pods):
            name = {"kubernetes.io/hostname": f"node-{number:05}"}
            item["spec"]["nodeSelector"] = name
        await cluster.add(*pods)
        assert await cluster.until_bound("pinned", 3) < HALF_SECONDS


async def test_pods_that_come_later_join_a_group_that_runs(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Two pods run; two more get the GPUs that are left, and the fifth waits alone."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.create_group("grows", 2, SHARE, SHARE)
        await cluster.until_bound("grows", 2)
        await cluster.add(*(member("grows", number, SHARE) for number in (2, 3, 4)))
        await cluster.until_bound("grows", 4)
        assert await cluster.double() == []


async def test_a_group_larger_than_the_cluster_keeps_no_gpu_from_others(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Six pods never fit; four pods of no group take all GPUs at once."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.create_group("huge", 6, *[SHARE] * 6)
        await cluster.refused("huge")
        names = [f"alone-{number}" for number in range(4)]
        await cluster.add(*map(alone, names))
        await until_alone_bound(cluster, *names)
        assert await cluster.bound("huge") == {}


async def test_of_two_groups_that_fit_one_at_a_time_one_wins(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Three pods each, four GPUs: one group runs within ten seconds, the other waits whole."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await asyncio.gather(
            cluster.create_group("one", 3, *[SHARE] * 3),
            cluster.create_group("two", 3, *[SHARE] * 3),
        )
        await cluster.until_some_group(("one", "two"), 3, HALF_SECONDS)
        counts = {name: len(await cluster.bound(name)) for name in ("one", "two")}
        assert sorted(counts.values()) == [0, 3]
        winner, loser = sorted(counts, key=lambda name: -counts[name])
        for name in await cluster.bound(winner):
            await cluster.delete(name)
        await cluster.until_bound(loser, 3)


async def test_pods_of_different_sizes_are_planned_together(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """One pod of a whole GPU and eight of a third: none is bound while another pod holds a GPU."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.add(alone("held"))
        await until_alone_bound(cluster, "held")
        await cluster.create_group("mixed", 9, 26, 26, 26, 79, 26, 26, 26, 26, 26)
        await cluster.refused("mixed")
        assert await cluster.bound("mixed") == {}
        await cluster.delete("held")
        await cluster.until_bound("mixed", 9)
        assert await cluster.double() == []


async def test_a_group_of_the_basic_policy_gets_what_fits(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Without a minimum four of five pods are bound, each to a GPU of its own."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.create_group("basic", None, *[SHARE] * 5)
        assert await cluster.until_bound("basic", 4) < HALF_SECONDS
        assert await cluster.double() == []


async def test_a_plan_ends_when_kube_scheduler_refuses_a_pod_of_the_group(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """A pod of the group has no node by its selector: the GPUs of the others go to other pods."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        stuck = member("stuck", 3, SHARE)
        stuck["spec"]["nodeSelector"] = {"disk": "none"}
        await cluster.create_group("stuck", 4, *[SHARE] * 3)
        await cluster.add(stuck)
        await cluster.refused("stuck")
        names = [f"alone-{number}" for number in range(4)]
        await cluster.add(*map(alone, names))
        await until_alone_bound(cluster, *names)
        assert await cluster.bound("stuck") == {}


async def test_a_hostile_group_reserves_nothing_for_pods_that_do_not_exist(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """A minimum of a thousand with one pod keeps no GPU: four pods of others are bound at once."""
    async with group_cluster(plane, tmp_path, nodes(2)) as cluster:
        await cluster.create_group("hostile", 1000, SHARE)
        names = [f"alone-{number}" for number in range(4)]
        await cluster.add(*map(alone, names))
        await until_alone_bound(cluster, *names)

        async def nothing_bound() -> None:
            assert await cluster.bound("hostile") == {}

        await always(nothing_bound, 1.0)


async def test_a_group_evicts_no_pod_for_gpus(plane: ControlPlane, tmp_path: Path) -> None:
    """A pod of low priority holds the fifth GPU: the group waits whole, and the pod stays."""
    async with group_cluster(plane, tmp_path, nodes(3)) as cluster:
        await cluster.priority_class("high", 1000)
        await cluster.add(alone("low-0"), alone("low-1"))
        await until_alone_bound(cluster, "low-0", "low-1")
        await cluster.create_group("high", 5, *[SHARE] * 5, priority="high")
        await cluster.refused("high")

        async def nothing_changed() -> None:
            assert await cluster.bound("high") == {}
            assert not [
                one for one in await cluster.pods() if "deletionTimestamp" in one["metadata"]
            ]

        await always(nothing_changed, 3.0)
        await cluster.delete("low-0")
        await cluster.until_bound("high", 5)


async def test_a_group_is_placed_beside_nominations_of_a_backlog(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Pods of no group are nominated ahead; the group gets what is left, whole."""
    async with group_cluster(
        plane, tmp_path, nodes(4), nominate="backlog", nominate_after=0
    ) as cluster:
        names = [f"alone-{number}" for number in range(4)]
        await asyncio.gather(
            cluster.add(*map(alone, names)), cluster.create_group("four", 4, *[SHARE] * 4)
        )
        await until_alone_bound(cluster, *names)
        await cluster.until_bound("four", 4)
        assert await cluster.double() == []
