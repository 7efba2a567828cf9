"""The health stream report by report: when there is one, and what it has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fakedra.claims import node

from gpucore.node.claims.prepare import claim_node
from gpudeviceplugin.dra.health import HEALTH_SECONDS, TIMEOUT_SECONDS, HealthServicer
from gpudeviceplugin.proto import dra_health_v1_pb2 as api
from gpudeviceplugin.signals import Signal
from gpukube.testing.clock import FakeClock


class World:
    """A node with two GPUs and a stream of reports about them."""

    def __init__(self, clock: FakeClock) -> None:
        self.node = node()
        self.changed = Signal()
        self.health = HealthServicer(lambda: self.node, self.changed, clock=clock.now)

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[Any]:
        """Kubelet reads."""
        context: Any = None
        reports = self.health.NodeWatchResources(api.NodeWatchResourcesRequest(), context)
        async with asyncio.timeout(3600):
            yield reports
        await reports.aclose()  # type: ignore[attr-defined]

    def lose(self, index: int, *, paused: bool = False) -> None:
        """A GPU does not answer any more, or its MPS daemon accepts no new pods."""
        gpus = list(self.node.inventory.gpus)
        gpus[index] = msgspec.structs.replace(gpus[index], healthy=False, paused=paused)
        inventory = msgspec.structs.replace(self.node.inventory, gpus=tuple(gpus))
        self.node = claim_node(inventory, self.node.policy, "n1")
        self.changed.fire()


async def test_health_is_reported_from_time_to_time_without_any_change(clock: FakeClock) -> None:
    """Else kubelet would take it for unknown; each report has its time."""
    world, began = World(clock), clock.seconds
    async with world.stream() as reports:
        found = [await anext(reports) for _ in range(3)]
    assert clock.seconds == began + 2 * HEALTH_SECONDS
    times = [{each.last_updated_time for each in report.devices} for report in found]
    assert times == [{int(began + number * HEALTH_SECONDS)} for number in range(3)]
    assert {each.health_check_timeout_seconds for each in found[0].devices} == {TIMEOUT_SECONDS}
    assert HEALTH_SECONDS < TIMEOUT_SECONDS


async def test_a_change_while_kubelet_takes_a_report_is_in_the_next_one_at_once(
    clock: FakeClock,
) -> None:
    """Not ten seconds later."""
    world, began = World(clock), clock.seconds
    async with world.stream() as reports:
        await anext(reports)
        world.lose(1)
        second = await anext(reports)
    assert [each.health for each in second.devices] == [api.HEALTHY, api.UNHEALTHY]
    assert clock.seconds == began


async def test_a_stream_that_was_ended_has_no_more_reports(clock: FakeClock) -> None:
    """Also one that nobody reads at that moment."""
    world = World(clock)
    async with world.stream() as reports:
        await anext(reports)
        world.health.end()
        assert [report async for report in reports] == []
    async with world.stream() as reports:
        assert [report async for report in reports] == []


async def test_a_gpu_whose_mps_daemon_accepts_no_new_pods_is_healthy(clock: FakeClock) -> None:
    """The pods that run on it would be shown as pods of a broken GPU."""
    world = World(clock)
    world.lose(1, paused=True)
    async with world.stream() as reports:
        found = await anext(reports)
    assert [each.health for each in found.devices] == [api.HEALTHY, api.HEALTHY]
