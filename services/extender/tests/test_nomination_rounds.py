"""When rounds follow each other and patches are sent, and what is logged where a read fails."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from decoded import a_node, a_pod, assume, state_of
from nominating import pending
from nominationbench import Bench, count
from replicas import Health
from structlog.testing import capture_logs

from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.policy import place
from gpucore.units import NodeName
from gpuextender.nomination.rounds import (
    NEVER,
    PAUSE_SECONDS,
    Leadership,
    NominationRounds,
    evaluates_nominated_first,
)
from gpuextender.nomination.writes import AT_ONCE, BURST, PER_SECOND, NominationWrites
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.requeue import Requeue
from gpukube.errors import ServerError, UnreachableError
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import ScriptedClient


class Ends:
    """Counts resignations."""

    def __init__(self) -> None:
        self.resigned = 0

    def resign(self) -> None:
        """Another process nominates."""
        self.resigned += 1


class Adoption:
    """Counts looks, and beginnings."""

    def __init__(self) -> None:
        self.looks = self.begun = 0

    def begin(self) -> None:
        """This process nominates from now on."""
        self.begun += 1

    async def look(self) -> float:
        """Adopt what was written before."""
        self.looks += 1
        return NEVER


class Rounds:
    """Rounds that take ``lasting`` seconds each; ``pauses`` are what they answer, in order."""

    def __init__(self, clock: FakeClock, *pauses: float, lasting: float = 0.0) -> None:
        self.clock, self.pauses, self.lasting = clock, list(pauses), lasting
        self.begin, self.at = clock.seconds, list[float]()
        self.woken, self.ends, self.health = asyncio.Event(), Ends(), Health()
        self.adoption = Adoption()
        self.leading, self.term = True, 0
        self.rounds = NominationRounds(
            self,  # type: ignore[arg-type]
            self.health,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.adoption,  # type: ignore[arg-type]
            now=clock.now,
        )

    async def leads(self) -> bool:
        """Leadership."""
        return self.leading

    def due(self) -> bool:
        """A pod is due."""
        return True

    async def round(self) -> float:
        """One round."""
        self.at.append(round(self.clock.seconds - self.begin, 3))
        await asyncio.sleep(self.lasting)
        return self.pauses.pop(0) if self.pauses else NEVER

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run beside the test, woken once."""
        self.woken.set()
        task = asyncio.create_task(self.rounds.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_next_round_comes_when_the_last_one_says(clock: FakeClock) -> None:
    """Never without another cause where it has no more to do."""
    rounds = Rounds(clock, 3.0, 7.0)
    async with rounds.running():
        await asyncio.sleep(100)
        assert rounds.at == [0, 3, 10]
        rounds.woken.set()
        await asyncio.sleep(1)
        assert rounds.at == [0, 3, 10, 100]


async def test_rounds_leave_other_work_twice_the_time_that_they_take(clock: FakeClock) -> None:
    """And at least a twentieth of a second, however often they are woken."""
    rounds = Rounds(clock, *[0.0] * 4, lasting=1.0)
    async with rounds.running():
        await asyncio.sleep(10)
        assert rounds.at == [0, 3, 6, 9]
    quick = Rounds(clock, *[0.0] * 3)
    async with quick.running():
        await asyncio.sleep(10)
        assert quick.at == [round(number * PAUSE_SECONDS, 3) for number in range(4)]


async def test_nothing_is_nominated_while_the_state_is_not_current(clock: FakeClock) -> None:
    """What woke a round then is done once the state is current, within a second."""
    rounds = Rounds(clock)
    rounds.health.why_not = "pods are not listed"
    async with rounds.running():
        await asyncio.sleep(50.5)
        assert rounds.at == []
        rounds.health.why_not = ""
        await asyncio.sleep(100)
        assert len(rounds.at) == 1
        assert rounds.at[0] <= 51.5


async def test_what_was_reserved_is_given_up_once_when_another_leads(clock: FakeClock) -> None:
    """And what earlier leaders wrote is looked for in each round."""
    rounds = Rounds(clock)
    await rounds.rounds.round()
    assert (rounds.adoption.looks, rounds.ends.resigned) == (1, 0)
    rounds.leading = False
    for _ in range(3):
        await rounds.rounds.round()
    assert (rounds.adoption.looks, rounds.ends.resigned) == (1, 1)
    rounds.leading, rounds.term = True, 1
    await rounds.rounds.round()
    assert (rounds.adoption.looks, rounds.ends.resigned) == (2, 1)
    assert rounds.adoption.begun == 2
    rounds.term = 2
    await rounds.rounds.round()
    assert rounds.ends.resigned == 2


# Patches.


class Slow:
    """Each patch takes a tenth of a second; counts those that are on their way."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.now, self.most = clock, 0, 0
        self.at: list[float] = []

    async def patch(self, path: str, body: bytes) -> bytes:
        """Take a patch."""
        assert path.startswith("/api/v1/namespaces/default/pods/p")
        assert path.endswith("/status?fieldManager=gpushare-nominator")
        assert json.loads(body)["status"]["nominatedNodeName"] == "n"
        self.at.append(self.clock.seconds)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.1)
        self.now -= 1
        return b'{"metadata": {"resourceVersion": "7"}}'


async def sent(clock: FakeClock, number: int) -> Slow:
    """So many pods are nominated at once, and their patches are sent."""
    api, state = Slow(clock), state_of(a_node("n", number))
    requeue = Requeue(state, api, Gangs(state, Rules()))  # type: ignore[arg-type]
    writes = NominationWrites(state, api, requeue.is_refused)  # type: ignore[arg-type]
    task = asyncio.create_task(writes.run())
    await asyncio.sleep(1)
    for index in range(number):
        pod = a_pod(pending(f"p{index}", 1))
        state.pod_changed(pod)
        info, request = state.ledger.node(NodeName("n")), state.saw(pod).pod_request
        assert info is not None
        assert request is not None
        state.nominate(pod, place(info, request), now_ns=0)  # type: ignore[arg-type]
        writes.put(pod, NodeName("n"))
    await asyncio.sleep(600)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(api.at) == number
    assert not len(writes)
    return api


async def test_several_patches_are_on_their_way_at_a_time(clock: FakeClock) -> None:
    """Eight; they are sent by this process, whoever leads, where no leader is elected."""
    found = await sent(clock, 24)
    assert found.most == AT_ONCE
    assert found.at[-1] - found.at[0] == pytest.approx(0.2)


async def test_the_rate_of_patches_is_bounded() -> None:
    """A burst, then so many a second."""
    rate = NominationWrites(state_of(), None, lambda _: False)._rate  # type: ignore[arg-type]
    waits = [rate.turn(0.0) for _ in range(BURST + PER_SECOND)]
    assert set(waits[:BURST]) == {0.0}
    assert waits[-1] == pytest.approx(1.0, abs=0.01)


def test_patches_are_counted_by_their_outcome(bench: Bench) -> None:
    """Written, cleared and failed; one that failed is logged with its pod and the error."""
    before = {name: count(name) for name in ("written", "cleared", "failed")}
    bench.comes(pending("p", 16))
    bench.round()
    bench.cluster.failures = [ServerError("PATCH", status=500, message="no")]
    with capture_logs() as logs:
        bench.send()
    found = [one for one in logs if one["event"] == "not nominated"]
    assert [(one["pod"], one["error"]) for one in found] == [("default/p", "PATCH: 500 no")]
    bench.time += 1
    bench.round()
    bench.send()
    bench.node("a", 16, unschedulable=True)
    bench.look()
    bench.send()
    changes = {name: count(name) - number for name, number in before.items()}
    assert changes == {"written": 1, "cleared": 1, "failed": 1}


# Reads.


def test_a_nomination_that_is_not_read_is_logged_and_the_others_are_read(bench: Bench) -> None:
    """A read that fails ends no round."""
    bench.nominated(pending("p", 16), pending("q", 12))
    bench.restart()
    get, failures = bench.cluster.get, ["p"]

    async def failing(path: str) -> bytes:
        assert path.startswith("/api/v1/namespaces/default/pods/")
        if path.endswith(tuple(failures)):
            raise UnreachableError("no route")
        return await get(path)

    bench.cluster.get = failing  # type: ignore[method-assign]
    with capture_logs() as logs:
        bench.round()
    assert [(one["event"], one["pod"], one["error"]) for one in logs] == [
        ("nomination not read", "default/p", "no route")
    ]
    assert bench.reserved == {"q": "b"}


@pytest.mark.parametrize(("minor", "new"), [("21", False), ("22", True)])
async def test_the_version_is_read_from_the_api_server(minor: str, *, new: bool) -> None:
    """One that is too old is logged with it."""
    api = ScriptedClient(json.dumps({"major": "1", "minor": minor}).encode())
    with capture_logs() as logs:
        assert await evaluates_nominated_first(api) is new
    assert [one.path for one in api.requests] == ["/version"]
    text = "no pods are nominated before Kubernetes 1.22"
    assert [(one["event"], one["version"]) for one in logs] == (
        [] if new else [(text, (1, int(minor)))]
    )


async def test_a_version_that_is_not_read_is_logged() -> None:
    """With the reason."""
    with capture_logs() as logs:
        assert await evaluates_nominated_first(ScriptedClient(UnreachableError("no answer")))
    assert [(one["event"], one["error"]) for one in logs] == [
        ("version of the API server not read", "no answer")
    ]


@pytest.mark.parametrize("gone", ["holderIdentity", "leaseDurationSeconds", "renewTime"])
async def test_a_lease_without_a_field_is_held_by_nobody(gone: str) -> None:
    """An API server may leave out each of them."""
    spec: dict[str, Any] = {
        "holderIdentity": "pod-a_1",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T12:00:00Z",
    }
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for left_out, leads in ((gone, False), ("", True)):
        left = {key: value for key, value in spec.items() if key != left_out}
        leadership = Leadership(
            ScriptedClient(json.dumps({"spec": left}).encode()),
            lease="ns/name",
            host="pod-a",
            now=lambda: 5.0,
            clock=lambda: moment,
        )
        assert leadership.term == 0
        assert await leadership.leads() is leads
        assert leadership.term == 0


async def test_a_lease_that_is_not_read_is_logged() -> None:
    """With the reason; nobody leads meanwhile."""
    api = ScriptedClient(UnreachableError("no answer"))
    leadership = Leadership(api, lease="ns/name", host="pod-a", now=lambda: 5.0)
    with capture_logs() as logs:
        assert not await leadership.leads()
    assert [(one["event"], one["error"]) for one in logs] == [("lease not read", "no answer")]


async def test_a_pod_that_is_assumed_needs_no_patch(bench: Bench) -> None:
    """The scheduler binds it."""
    bench.comes(pending("p", 16))
    assume(bench.state, bench.state.find("default", "p").pod, "a")
    bench.replica.writes.put(bench.state.find("default", "p").pod, NodeName("a"))
    await bench.replica.writes.send_next()
    assert bench.written == []
