"""Readiness: which age is too old, what a bind waits for, and which verbs it stops."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gpuextender import health, metrics
from gpuextender.health import CONFIRM_SECONDS, STILL_SECONDS, TURN_SECONDS, Readiness
from gpuextender.http.routes import SchedulerRoutes
from gpuextender.scheduling.bind import BindResult
from gpuextender.scheduling.messages import FilterResult
from gpukube.testing.clock import FakeClock

STALE = 60.0


class FakeInformer:
    """An informer whose age and confirmation a test sets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.age, self.lists = 0.0, 0
        self.event = asyncio.Event()
        self.event.set()

    @property
    def confirmed(self) -> bool:
        return self.event.is_set()

    async def wait_for_confirmation(self) -> None:
        await self.event.wait()

    def list_again(self) -> None:
        self.lists += 1
        self.event.clear()


class Bench:
    """The health of a process that follows nodes and pods."""

    def __init__(self) -> None:
        self.nodes, self.pods = FakeInformer("nodes"), FakeInformer("pods")
        self.health = Readiness([self.nodes, self.pods], stale_after=STALE)
        self.health.loaded = True


class FakeVerb:
    """A verb that keeps its requests, and answers with what it was given."""

    def __init__(self, found: Any) -> None:
        self.found = found
        self.requests: list[Any] = []

    async def bind(self, request: Any) -> Any:
        self.requests.append(request)
        return self.found

    filter = bind


def test_both_collections_must_be_listed_and_entered() -> None:
    """Nothing is decided before; the reason names what is missing."""
    bench = Bench()
    bench.health.loaded = False
    bench.nodes.age = bench.pods.age = float("inf")
    assert bench.health.obstacle() == "nodes are not listed yet"
    bench.nodes.age = 0.0
    assert bench.health.obstacle() == "pods are not listed yet"
    bench.pods.age = 0.0
    assert bench.health.obstacle() == "initial list not applied yet"
    bench.health.loaded = True
    assert bench.health.obstacle() == ""


def test_an_old_collection_is_not_decided_on() -> None:
    """The limit itself is still good; beyond it the reason has the age."""
    bench = Bench()
    bench.pods.age = STALE
    assert bench.health.obstacle() == ""
    bench.pods.age = STALE + 1
    assert bench.health.obstacle() == "the API server has sent nothing about pods for 61 s"


def test_a_process_that_drains_is_unready_and_still_decides() -> None:
    """Requests come until every client knows."""
    bench = Bench()
    assert bench.health.unready() == ""
    bench.health.draining = True
    assert bench.health.unready() == "shutting down"
    assert bench.health.obstacle() == ""
    bench.health.draining = False
    bench.nodes.age = 2 * STALE
    assert bench.health.unready() == bench.health.obstacle() != ""


def test_gauges_show_ages_and_readiness() -> None:
    """As they are when metrics are scraped."""
    bench = Bench()
    bench.nodes.age, bench.pods.age = 3.0, 4.0
    bench.health.measure()
    ages = [metrics.REFLECTOR_AGE.labels(name)._value.get() for name in ("nodes", "pods")]
    assert (ages, metrics.READY._value.get()) == ([3.0, 4.0], 1.0)
    bench.health.draining = True
    bench.health.measure()
    assert metrics.READY._value.get() == 0.0


async def test_a_bind_waits_for_a_confirmation(clock: FakeClock) -> None:
    """It goes on as soon as each collection is confirmed."""
    bench = Bench()
    bench.pods.event.clear()
    waiting = asyncio.create_task(bench.health.unconfirmed())
    await asyncio.sleep(CONFIRM_SECONDS / 2)
    assert not waiting.done()
    bench.pods.event.set()
    began = clock.now()
    assert await waiting == ""
    assert clock.now() == began


@pytest.mark.parametrize("name", ["nodes", "pods"])
async def test_a_bind_is_refused_without_a_confirmation(clock: FakeClock, name: str) -> None:
    """It waits for a second, not for the deadline of the scheduler."""
    bench = Bench()
    getattr(bench, name).event.clear()
    began = clock.now()
    expected = f"the API server has not confirmed {name} since the watch failed"
    assert await bench.health.unconfirmed() == expected
    assert clock.now() - began == pytest.approx(CONFIRM_SECONDS)


async def test_a_process_that_stood_still_lists_again_before_it_allocates(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another leader may have bound pods, which lie unread in the watch."""
    monkeypatch.setattr(health, "monotonic", clock.now)
    bench = Bench()
    job = asyncio.create_task(bench.health.list_after_standstill())
    for still, lists in ((STILL_SECONDS - TURN_SECONDS, 0), (STILL_SECONDS + TURN_SECONDS, 1)):
        await asyncio.sleep(100.5)
        assert await bench.health.unconfirmed() == ""
        clock.seconds += still
        why = f"the extender stood still for {still - 0.5:.0f} s"
        expected = f"{why} and has to list nodes and pods again" if lists else ""
        assert await bench.health.unconfirmed() == expected
        await asyncio.sleep(TURN_SECONDS)
        assert (bench.nodes.lists, bench.pods.lists) == (lists, lists)
    assert "has not confirmed nodes" in await bench.health.unconfirmed()
    for one in (bench.nodes, bench.pods):
        one.event.set()
    assert await bench.health.unconfirmed() == ""
    job.cancel()


async def test_a_collection_that_fails_while_another_is_waited_for_stops_the_bind(
    clock: FakeClock,
) -> None:
    """All are confirmed at one time, or no GPU is given away."""
    bench = Bench()
    bench.pods.event.clear()

    async def confirm() -> None:
        await asyncio.sleep(0.1)
        bench.nodes.event.clear()
        bench.pods.event.set()

    found, _ = await asyncio.gather(bench.health.unconfirmed(), confirm())
    assert found == "the API server has not confirmed nodes since the watch failed"


async def test_a_confirmation_that_proves_a_restore_stops_the_bind(clock: FakeClock) -> None:
    """What was confirmed may be that everything is old."""
    bench = Bench()
    bench.pods.event.clear()

    async def confirm() -> None:
        await asyncio.sleep(0.1)
        bench.pods.age = float("inf")
        bench.pods.event.set()

    found, _ = await asyncio.gather(bench.health.unconfirmed(), confirm())
    assert found == "pods are not listed yet"


async def test_an_unready_process_refuses_a_bind_at_once(clock: FakeClock) -> None:
    """No confirmation is waited for."""
    bench = Bench()
    bench.nodes.age = float("inf")
    bench.nodes.event.clear()
    began = clock.now()
    assert await bench.health.unconfirmed() == "nodes are not listed yet"
    assert clock.now() == began


class TestVerbs:
    """What the scheduler's requests need."""

    def verbs(self, bench: Bench) -> tuple[SchedulerRoutes, FakeVerb, FakeVerb]:
        """The verbs, with the filter and the bind behind them."""
        filter_, bind = FakeVerb(FilterResult()), FakeVerb(BindResult("bound"))
        unused: Any = None
        parts: dict[str, Any] = {"filter_": filter_, "bind": bind}
        verbs = SchedulerRoutes(prioritize=unused, preempt=unused, health=bench.health, **parts)
        return verbs, filter_, bind

    async def test_filter_and_bind_are_refused_while_unready(self, clock: FakeClock) -> None:
        """Filter with status 200, bind with 500, both with the reason, and nothing is called."""
        bench = Bench()
        verbs, filter_, bind = self.verbs(bench)
        bench.pods.age = float("inf")
        handlers: list[tuple[Callable[[bytes], Awaitable[Any]], int]] = [
            (verbs.filter, 200),
            (verbs.bind, 500),
        ]
        for handler, status in handlers:
            reply = await handler(b"{}")
            assert reply.status == status
            assert json.loads(reply.body)["Error"] == "pods are not listed yet"
        assert filter_.requests == bind.requests == []

    async def test_only_a_bind_needs_a_confirmation(self, clock: FakeClock) -> None:
        """A filter gives nothing away."""
        bench = Bench()
        verbs, filter_, bind = self.verbs(bench)
        bench.pods.event.clear()
        assert json.loads((await verbs.filter(b"{}")).body)["Error"] == ""
        assert len(filter_.requests) == 1
        reply = await verbs.bind(b"{}")
        assert (reply.status, bind.requests) == (500, [])
        assert "has not confirmed pods" in json.loads(reply.body)["Error"]

    async def test_a_bind_that_cannot_be_read_is_refused(self, clock: FakeClock) -> None:
        """The error is that of the decoder; nothing is bound."""
        verbs, _, bind = self.verbs(Bench())
        reply = await verbs.bind(b"[")
        assert (reply.status, bind.requests) == (500, [])
        assert json.loads(reply.body)["Error"]

    async def test_the_answer_of_a_bind_is_its_error(self, clock: FakeClock) -> None:
        """Empty with status 200, or the reason with 500."""
        verbs, _, bind = self.verbs(Bench())
        body = json.dumps({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"})
        reply = await verbs.bind(body.encode())
        assert (reply.status, json.loads(reply.body)) == (200, {"Error": ""})
        [args] = bind.requests
        assert (args.pod_name, args.pod_namespace, args.pod_uid, args.node) == ("p", "d", "u", "n")
        bind.found = BindResult("lost", "too late")
        reply = await verbs.bind(body.encode())
        assert (reply.status, json.loads(reply.body)) == (500, {"Error": "too late"})
