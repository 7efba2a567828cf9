"""Rounds of chaos: kill, start again, wait until a new pod runs, check.

Every part is started again at once, as kubelet or systemd would do it. A round's recovery is the
time from the kill until a pod that is created afterwards runs with its devices, and until the node
whose plugin or kubelet was killed offers all its devices again. Where the API server or etcd was
killed, nobody can recover before the API server is ready; the limit counts from then on. Where
schedulers elect a leader, the limit counts from the moment at which one leads.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from chaos import settling
from chaos.invariants import MEM, capacity_faults
from chaos.load import AWAY, PODS, PodLoad
from chaos.rig import Rig, StackPart
from environments.apicall import ApiCalls
from host.progress import say

RECOVERY_SECONDS: Final = 10.0
"""Maximum recovery time of a round on a machine that does nothing else."""
DEADLINE_SECONDS: Final = 90.0
STUCK_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 1.5
TWO_AT_ONCE: Final = 0.15
SETTLE_EVERY: Final = 25
CONTROL_PLANE: Final = frozenset({"kube-apiserver", "etcd"})
LEADING: Final = CONTROL_PLANE | {"scheduler"}
"""Without these a scheduler may lose its lease, and nobody schedules until that has ended."""

Object = dict[str, Any]


class RoundResult(msgspec.Struct):
    """One kill.

    Attributes:
        killed: the parts.
        api_seconds: from the kill until the API server was ready, where that was lost.
        leader_seconds: from then until a scheduler led, where one may have been lost.
        seconds: recovery, counted from the kill, or from the end of the times above.
        faults: sentences about what did not hold.
    """

    killed: list[str]
    api_seconds: float = 0.0
    leader_seconds: float = 0.0
    seconds: float = 0.0
    faults: list[str] = []


class ChaosRun(msgspec.Struct):
    """All rounds, and what the pods went through."""

    seed: int
    rounds: list[RoundResult] = []
    created: int = 0
    completed: int = 0
    refused: dict[str, int] = {}
    refusals: list[str] = []
    settled: list[float] = []
    faults: list[str] = []

    @property
    def violations(self) -> list[str]:
        """Everything that did not hold, with the number of its round."""
        found = [
            f"round {number} ({' and '.join(one.killed)}): {fault}"
            for number, one in enumerate(self.rounds)
            for fault in one.faults
        ]
        return found + self.faults


class ChaosRounds:
    """Kills parts of a running rig.

    Args:
        rig: started.
        calls: to its API server.
        seed: of every choice.
        recovery_s: maximum recovery time of a round in seconds; longer is a fault.
    """

    def __init__(
        self, rig: Rig, calls: ApiCalls, seed: int, *, recovery_s: float = RECOVERY_SECONDS
    ) -> None:
        self._rig, self._calls = rig, calls
        self._recovery_s = recovery_s
        self._random = random.Random(seed)
        source = random.Random(seed + 1)
        self._load = PodLoad(calls, source, units=rig.units, pod=rig.pod)
        self.run = ChaosRun(seed)
        self._reported: set[str] = set()

    async def go(self, rounds: int, *, until: float) -> ChaosRun:
        """Run rounds until there were so many or the monotonic clock reaches ``until``."""
        loading = asyncio.create_task(self._pods())
        try:
            await self._settle()
            for number in range(rounds):
                if time.monotonic() > until:
                    break
                self.run.rounds.append(await self._round(number))
                for fault in self.run.rounds[-1].faults:
                    say(f"{number}: {fault}")
                if (number + 1) % SETTLE_EVERY == 0:
                    await self._settle()
                    bad = len(self.run.violations)
                    say(f"{number + 1} kills, {self._load.created} pods, {bad} violations")
            await self._settle()
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        load = self._load
        self.run.created, self.run.completed = load.created, load.completed
        self.run.refused, self.run.refusals = dict(load.refused), load.refusals
        return self.run

    async def _pods(self) -> None:
        while True:
            await self._load.step()
            await asyncio.sleep(self._rig.step_seconds)

    async def _round(self, number: int) -> RoundResult:
        await asyncio.sleep(self._random.uniform(0, PAUSE_SECONDS))
        victims = self._victims()
        found = RoundResult([str(part) for part in victims])
        before = {part.node: await self._generation(part.node) for part in victims if part.node}
        begin, killed_at = time.monotonic(), datetime.now(UTC)
        for part in victims:
            await asyncio.to_thread(self._rig.kill, part)
        found.faults += self._capacity()
        for part in sorted(victims, key=lambda part: part.kind == "kube-apiserver"):
            self._rig.start_again(part)
        if any(part.kind in CONTROL_PLANE for part in victims):
            await self._api_ready()
            found.api_seconds = time.monotonic() - begin
            begin = time.monotonic()
            killed_at = datetime.now(UTC)
        if self._rig.lease and any(part.kind in LEADING for part in victims):
            await self._led(killed_at)
            found.leader_seconds = time.monotonic() - begin
            begin = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await self._recovered(number, before)
        except TimeoutError:
            found.faults.append(f"not recovered within {DEADLINE_SECONDS:g} s")
        found.seconds = time.monotonic() - begin
        found.faults += late(found, self._recovery_s)
        found.faults += self._capacity() + self._alive() + self._lost()
        return found

    def _victims(self) -> Sequence[StackPart]:
        """One part, each kind as likely as any other, or two."""
        count = 2 if self._random.random() < TWO_AT_ONCE else 1
        kinds = self._random.sample(sorted({part.kind for part in self._rig.parts}), count)
        return [
            self._random.choice([part for part in self._rig.parts if part.kind == kind])
            for kind in kinds
        ]

    async def _api_ready(self) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await self._answers("/readyz"):  # noqa: ASYNC110 - another process
                await asyncio.sleep(POLL_SECONDS)

    async def _led(self, since: datetime) -> None:
        """A scheduler has renewed the lease since then."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (  # noqa: ASYNC110 - another process
                (found := await self._answers(self._rig.lease))
                and _renewed(msgspec.json.decode(found)) > since
            ):
                await asyncio.sleep(POLL_SECONDS)

    async def _answers(self, path: str) -> bytes:
        try:
            return await self._calls.call("GET", path)
        except AWAY:
            return b""

    async def _generation(self, node: str) -> str:
        return self._rig.generation(
            msgspec.json.decode(await self._calls.call("GET", f"/api/v1/nodes/{node}"))
        )

    async def _recovered(self, number: int, before: Mapping[str, str]) -> None:
        """A new pod runs, and the devices of the node are offered again."""
        name = f"probe-{number}"
        await self._until_done("POST", PODS, self._rig.pod(name, [{MEM: 1}]))
        await self._until(f"{PODS}/{name}", lambda pod: pod["status"].get("phase") == "Running")
        for node, generation in before.items():
            offers = partial(settling.offers_all, rig=self._rig, after=generation)
            await self._until(f"/api/v1/nodes/{node}", offers)
        await self._until_done("DELETE", f"{PODS}/{name}")

    async def _until_done(self, verb: str, path: str, body: Object | None = None) -> None:
        while True:
            try:
                await self._calls.call(verb, path, body, fine=(200, 201, 404, 409))
            except AWAY:
                await asyncio.sleep(POLL_SECONDS)
            else:
                return

    async def _until(self, path: str, true: Callable[[Object], bool]) -> None:
        while not ((found := await self._answers(path)) and true(msgspec.json.decode(found))):
            if found and msgspec.json.decode(found).get("status", {}).get("phase") == "Failed":
                await self._again(path)
            await asyncio.sleep(POLL_SECONDS)

    async def _again(self, path: str) -> None:
        """A probe that its kubelet refused, created anew as a controller would."""
        name = path.rpartition("/")[2]
        await self._until_done("DELETE", f"{path}?gracePeriodSeconds=0")
        await self._until_done("POST", PODS, self._rig.pod(name, [{MEM: 1}]))

    def _capacity(self) -> list[str]:
        """Faults that are new: one that stays is one violation."""
        found = set(capacity_faults(self._rig.grants(), self._rig.machines)) - self._reported
        self._reported |= found
        return sorted(found)

    def _alive(self) -> list[str]:
        """Parts that ended by themselves; they are started again."""
        found = []
        for part in self._rig.ended():
            found.append(f"{part} ended by itself: {self._rig.log(part)}")
            self._rig.start_again(part)
        return found

    def _lost(self) -> list[str]:
        lost, self._load.lost = self._load.lost, []
        stuck = {
            f"{name} has waited for {STUCK_SECONDS:g} s"
            for name in self._load.waiting(STUCK_SECONDS)
        } - self._reported
        self._reported |= stuck
        return lost + sorted(stuck)

    async def _settle(self) -> None:
        """No more kills for a moment: every pod runs, and all accounts are equal."""
        begin = time.monotonic()
        faults = await settling.settled(self._rig, self._load)
        self.run.settled.append(round(time.monotonic() - begin, 2))
        for fault in faults:
            say(f"after {len(self.run.rounds)}: {fault}")
        self.run.faults += [f"after round {len(self.run.rounds)}: {fault}" for fault in faults]
        self.run.faults += self._capacity()


def late(found: RoundResult, recovery_s: float) -> list[str]:
    """The fault of a round whose recovery took longer than so many seconds."""
    if found.seconds <= recovery_s:
        return []
    away = f", the API server was away for {found.api_seconds:.1f} s" if found.api_seconds else ""
    return [f"recovered after {found.seconds:.1f} s{away}"]


def _renewed(lease: Object) -> datetime:
    """When the leader renewed its lease last."""
    text = lease["spec"].get("renewTime") or "1970-01-01T00:00:00Z"
    return datetime.fromisoformat(text)
