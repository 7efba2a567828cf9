"""The times of a drain: for schedulers to see it, and for pods that are waited for."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpudeviceplugin.kubelet.draining import TELL_SECONDS, WAITING_SECONDS, Drain
from gpudeviceplugin.signals import Signal
from gpukube.errors import UnreachableError
from gpukube.testing.clock import FakeClock

BOUND = SimpleNamespace(namespace="team", name="p")


class World:
    """State and publisher in one.

    Attributes:
        slow: seconds that schedulers take to be notified.
        served_after: seconds after which kubelet has requested every pod; ``None`` for never.
    """

    def __init__(self, clock: FakeClock, *, served_after: float | None = 0.0) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.serving = True
        self.slow = 0.0
        self.error: Exception | None = None
        self.served_after = served_after
        self.pods_changed = Signal()
        self.matcher = SimpleNamespace(queue=self)
        self.requested: list[float] = []

    def now(self) -> float:
        return round(self.clock.seconds - self.began, 3)

    def unserved(self) -> list[Any]:
        """As that of the queue."""
        self.requested.append(self.now())
        waiting = self.served_after is None or self.now() < self.served_after
        return [BOUND] if waiting else []

    async def withdraw(self) -> None:
        """As the publisher's."""
        await asyncio.sleep(self.slow)
        if self.error is not None:
            raise self.error
        self.serving = False

    async def drain(self, settle_seconds: float = 1.0) -> float:
        """Drain; returns how long it took."""
        await Drain(self, self, settle_seconds=settle_seconds).run()  # type: ignore[arg-type]
        return self.now()


async def test_schedulers_are_given_their_time_before_pods_are_looked_at(
    clock: FakeClock,
) -> None:
    """A pod may be bound until they have acted upon the news."""
    world = World(clock)
    assert await world.drain() == 1.0
    assert world.requested == [1.0]


async def test_pods_that_were_bound_are_looked_at_until_kubelet_has_requested_them(
    clock: FakeClock,
) -> None:
    """Also without an event: an allocation changes no pod."""
    world = World(clock, served_after=2.95)
    assert await world.drain() == 3.0


async def test_a_pod_that_kubelet_never_allocates_for_is_waited_for_five_seconds(
    clock: FakeClock,
) -> None:
    """The log names it."""
    world = World(clock, served_after=None)
    with capture_logs() as logged:
        assert await world.drain() == pytest.approx(1.0 + WAITING_SECONDS)
    (line,) = logged
    assert line["event"] == "stopping before kubelet has called Allocate for every pod"
    assert (line["log_level"], line["pods"]) == ("warning", ["team/p"])


@pytest.mark.parametrize(("slow", "error", "took"), [(60, None, TELL_SECONDS), (1, "no answer", 1)])
async def test_where_schedulers_cannot_be_notified_nobody_is_waited_for(
    clock: FakeClock, slow: float, error: str | None, took: float
) -> None:
    """They go on binding pods, so a wait would change nothing."""
    world = World(clock, served_after=None)
    world.slow, world.error = slow, UnreachableError(error) if error else None
    with capture_logs() as logged:
        assert await world.drain() == took
    assert world.requested == []
    assert [line["event"] for line in logged] == ["cannot exclude the node from scheduling"]
