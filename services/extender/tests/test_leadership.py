"""Which replica nominates: the one beside the scheduler that holds the Lease."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuextender.nomination.rounds import FRESH_SECONDS, Leadership
from gpukube.errors import (
    ForbiddenError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnreachableError,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PATH = "/apis/coordination.k8s.io/v1/namespaces/gpushare/leases/gpushare-scheduler"


class Leases:
    """An API server with one Lease, or none."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.reads = 0
        self.failure: Exception | None = None
        self.responds = asyncio.Event()
        self.responds.set()

    def held(self, holder: str | None, since: float = 0.0) -> None:
        """The holder renewed the Lease so many seconds ago."""
        renewed = (NOON - timedelta(seconds=since)).isoformat().replace("+00:00", "Z")
        self.spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}

    async def get(self, path: str) -> bytes:
        """The Lease."""
        assert path == PATH
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        if self.spec is None:
            raise NotFoundError("no lease", status=404, message="not found")
        found = json.dumps({"spec": self.spec}).encode()
        await self.responds.wait()
        return found


class Bench:
    """A process on the host ``pod-a``."""

    def __init__(self, lease: str = "gpushare/gpushare-scheduler") -> None:
        self.api, self.now = Leases(), 0.0
        self.leadership = Leadership(
            self.api,  # type: ignore[arg-type]
            lease=lease,
            host="pod-a",
            now=lambda: self.now,
            clock=lambda: NOON,
        )


async def test_a_process_without_a_lease_always_leads() -> None:
    """In mode extender no scheduler is elected beside it."""
    bench = Bench(lease="")
    assert await bench.leadership.leads()
    assert bench.api.reads == 0


@pytest.mark.parametrize(
    ("holder", "since", "leads"),
    [
        ("pod-a_1234", 0, True),
        ("pod-a_1234", 14, True),
        ("pod-a_1234", 15, False),
        ("pod-b_1234", 0, False),
        ("pod-a2_1234", 0, False),
        ("pod-a", 0, False),
        ("", 0, False),
        (None, 0, False),
    ],
)
async def test_the_holder_of_the_lease_is_the_scheduler_of_this_pod(
    holder: str | None, since: float, *, leads: bool
) -> None:
    """By the hostname in front of the identity; a Lease that was not renewed counts no more."""
    bench = Bench()
    bench.api.held(holder, since)
    assert await bench.leadership.leads() is leads


async def test_a_term_ends_when_another_scheduler_has_the_lease() -> None:
    """Terms have the numbers of the Lease's transitions; who does not lead has none."""
    bench, found = Bench(), []
    for holder, transitions in (("pod-b_1", 1), ("pod-a_1", 2), ("pod-a_2", 3)):
        bench.api.held(holder)
        assert bench.api.spec is not None
        bench.api.spec["leaseTransitions"] = transitions
        found.append(await bench.leadership.led_term())
        bench.now += FRESH_SECONDS
    assert found == [None, 2, 3]


async def test_without_an_answer_nobody_leads() -> None:
    """Nor with an odd one."""
    bench = Bench()
    assert not await bench.leadership.leads()
    bench.now += FRESH_SECONDS
    bench.api.spec = {"holderIdentity": 7}
    assert not await bench.leadership.leads()


async def test_the_lease_is_read_once_a_second() -> None:
    """However often it is needed."""
    bench = Bench()
    bench.api.held("pod-a_1")
    assert await bench.leadership.leads()
    bench.api.held("pod-b_1")
    assert await bench.leadership.leads()
    bench.now += FRESH_SECONDS
    assert not await bench.leadership.leads()
    assert bench.api.reads == 2


async def test_a_lease_that_was_lost_between_two_looks_begins_another_term() -> None:
    """Another scheduler may have led meanwhile, and its extender may have nominated."""
    bench = Bench()
    terms = list[int]()
    for transitions in (3, 3, 5):
        bench.api.held("pod-a_1")
        assert bench.api.spec is not None
        bench.api.spec["leaseTransitions"] = transitions
        bench.now += FRESH_SECONDS
        assert await bench.leadership.leads()
        terms.append(bench.leadership.term)
    assert terms[0] == terms[1] != terms[2]


@pytest.mark.parametrize(("renewed", "left"), [(0, 15), (10, 5), (-60, 15)])
async def test_nobody_leads_beyond_the_end_of_the_lease_while_the_api_server_is_silent(
    renewed: float, left: float
) -> None:
    """The client waits longer for a reply than a scheduler that renews nothing holds the Lease."""
    bench = Bench()
    bench.api.held("pod-a_1", since=renewed)
    assert await bench.leadership.leads()
    bench.api.responds.clear()
    bench.now = left - 0.5
    silent = asyncio.create_task(bench.leadership.leads())
    await asyncio.sleep(0)
    assert await bench.leadership.leads()
    bench.now = left
    assert not await bench.leadership.leads()
    assert await bench.leadership.led_term() is None
    bench.api.responds.set()
    await silent


@pytest.mark.parametrize(
    "failure",
    [
        ThrottledError("lease", status=429, message="busy", retry_after=1),
        ServerError("lease", status=503, message="down"),
        ForbiddenError("lease", status=403, message="roles are not read yet"),
        UnreachableError("reset"),
    ],
)
async def test_a_lease_that_cannot_be_read_is_held_until_its_end(failure: Exception) -> None:
    """One failed read must not cost the leader all that it reserved and wrote."""
    bench = Bench()
    bench.api.held("pod-a_1", since=5)
    assert await bench.leadership.leads()
    bench.api.failure = failure
    for bench.now, leads in ((1.0, True), (9.5, True), (10.5, False)):
        assert await bench.leadership.leads() is leads
    bench.api.failure = None
    bench.now += FRESH_SECONDS
    assert await bench.leadership.leads()


async def test_a_lease_that_was_deleted_is_held_no_more() -> None:
    """Any scheduler may create it again and hold it."""
    bench = Bench()
    bench.api.held("pod-a_1")
    assert await bench.leadership.leads()
    bench.api.spec = None
    bench.now += FRESH_SECONDS
    assert not await bench.leadership.leads()


async def test_a_late_reply_does_not_replace_a_newer_one() -> None:
    """Another scheduler got the Lease, which the one of this pod had given up, in between."""
    bench = Bench()
    bench.api.held("pod-a_1")
    reply = bench.api.responds = asyncio.Event()
    late = asyncio.create_task(bench.leadership.leads())
    await asyncio.sleep(0)
    bench.api.held("pod-b_1")
    bench.api.responds = asyncio.Event()
    bench.api.responds.set()
    bench.now += FRESH_SECONDS
    assert not await bench.leadership.leads()
    reply.set()
    assert not await late
    assert not await bench.leadership.leads()


async def test_a_slow_reply_takes_nothing_from_the_lease() -> None:
    """The rest of the Lease counts from the arrival of the reply."""
    bench = Bench()
    bench.api.held("pod-a_1", since=5)
    bench.api.responds.clear()
    slow = asyncio.create_task(bench.leadership.leads())
    await asyncio.sleep(0)
    bench.now = 5.0
    bench.api.responds.set()
    assert await slow
    bench.api.responds.clear()
    bench.now = 14.0
    silent = asyncio.create_task(bench.leadership.leads())
    await asyncio.sleep(0)
    assert await bench.leadership.leads()
    bench.api.responds.set()
    await silent


async def test_two_questions_after_a_quiet_time_have_one_answer() -> None:
    """The Lease was renewed; the second comes before the read of the first is answered."""
    bench = Bench()
    bench.api.held("pod-a_1")
    assert await bench.leadership.leads()
    bench.now = 60.0
    bench.api.responds.clear()
    questions = [asyncio.create_task(bench.leadership.leads()) for _ in range(2)]
    await asyncio.sleep(0)
    bench.api.responds.set()
    assert await asyncio.gather(*questions) == [True, True]
