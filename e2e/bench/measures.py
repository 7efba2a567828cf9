"""One part of the measurement after the other, each with the load of the machine before it."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from bench import backlog, binds, bursts, commands, creation, digest, latency, quiet, throughput
from bench.binds import Rate
from bench.meter import load
from bench.subject import Subject
from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from host.progress import say, step

T = TypeVar("T")

CONNECTIONS = (1, 8, 32)
NODE_STEPS = (100, 500, 5000)


class BenchPlan(msgspec.Struct, frozen=True):
    """How much is measured.

    Attributes:
        runs: of every figure.
        binds: pods of a run of binds.
        schedule: pods of a run end to end.
        backlog: pods that wait before a scheduler starts, and pods of a burst.
        rows: names of the only rows of backlogs, bursts and creations; none for all of them.
    """

    runs: int
    binds: int
    schedule: int
    backlog: int = 3000
    rows: frozenset[str] = frozenset()

    def of(self, rows: Mapping[str, T]) -> dict[str, T]:
        """Those that are measured."""
        return {name: row for name, row in rows.items() if name in (self.rows or rows)}


class Measures:
    """Measures subjects on one control plane.

    Attributes:
        loads: load average before each part.
    """

    def __init__(
        self, plane: ControlPlane, calls: ApiCalls, plan: BenchPlan, *, nodes: int
    ) -> None:
        self._plane, self._calls, self._plan, self._nodes = plane, calls, plan, nodes
        self.loads: list[tuple[str, float]] = []

    async def started(self) -> tuple[Subject, list[float], list[float]]:
        """Ours, started as often as there are runs; seconds to ready and MiB of each start."""
        seconds, memory = list[float](), list[float]()
        with self._part("start of the extender"):
            while True:
                subject = await asyncio.to_thread(Subject.ours, self._plane)
                seconds.append(subject.ready_seconds or 0.0)
                memory.append(subject.resident_mib() or 0.0)
                if len(seconds) == self._plan.runs:
                    return subject, seconds, memory
                subject.stop()

    async def latencies(self, subject: Subject) -> dict[str, dict[str, list[list[float]]]]:
        """Milliseconds of each call, by verb and number of names and run."""
        found: dict[str, dict[str, list[list[float]]]] = {"filter": {}, "prioritize": {}}
        for names in (count for count in NODE_STEPS if count <= self._nodes):
            with self._part(f"{subject.name}: filter and prioritize, {names} names"):
                for _ in range(self._plan.runs):
                    run = await asyncio.to_thread(latency.measure, subject, names, self._nodes)
                    for verb, series in found.items():
                        series.setdefault(str(names), []).append(run[verb])
        return found

    async def binds(self, subject: Subject) -> dict[str, Any]:
        """Rates of bind by number of connections, and of the original's writes, in turns."""
        found = {}
        for connections in CONNECTIONS:
            with self._part(f"{subject.name}: binds over {connections} connections"):
                bound, twice = list[Rate](), list[Rate]()
                for _ in range(self._plan.runs):
                    bound.append(await self._bind(subject, connections))
                    twice.append(await self._write_twice(subject, connections))
                found[str(connections)] = digest.binds(bound, twice)
        return found

    async def _bind(self, subject: Subject, connections: int) -> Rate:
        pods, nodes = self._plan.binds, self._nodes
        return await binds.measure(
            subject, self._calls, connections=connections, pods=pods, nodes=nodes
        )

    async def _write_twice(self, subject: Subject, connections: int) -> Rate:
        pods, nodes, pids = self._plan.binds, self._nodes, subject.pids()
        return await binds.two_writes(
            self._calls, connections=connections, pods=pods, nodes=nodes, pids=pids
        )

    async def end_to_end(self, subject: Subject) -> dict[str, Any]:
        """Rates without and with the extender, in turns, so that noise meets both."""
        plain, extended = list[Rate](), list[Rate]()
        for run in range(self._plan.runs):
            for found, url in ((plain, None), (extended, subject.url)):
                name = f"bench-{self._nodes}-{run}-{'with' if url else 'plain'}"
                with self._part(f"{subject.name}: {self._nodes} nodes, {name.rpartition('-')[2]}"):
                    found.append(await self._through(name, subject, url))
        return digest.end_to_end(plain, extended)

    async def backlog(self) -> dict[str, Any]:
        """Rates of a backlog by row, the rows in turns."""
        rows = self._plan.of(backlog.ROWS)
        found: dict[str, list[backlog.Placed]] = {name: [] for name in rows}
        for _ in range(self._plan.runs):
            for name, row in rows.items():
                with self._part(f"backlog of {self._plan.backlog} pods, {name}"):
                    run = await backlog.measure(
                        self._plane, self._calls, row, pods=self._plan.backlog
                    )
                    found[name].append(run)
                    say(f"{name}: {digest.backlog([run])}")
        return {name: digest.backlog(runs) for name, runs in found.items()}

    async def creation(self) -> dict[str, Any]:
        """Delays from creation to binding by row and rate; one run, the rows in turns."""
        found: dict[str, Any] = {}
        for name, row in self._plan.of(creation.CREATION_ROWS).items():
            with self._part(f"creation to binding, {name}"):
                delays = await creation.measure(self._plane, self._calls, row)
                found[name] = {str(rate): digest.creation(one) for rate, one in delays.items()}
        return found

    async def bursts(self) -> dict[str, Any]:
        """Rates of a burst and of trickles by row, the rows in turns."""
        rows = self._plan.of(bursts.BURST_ROWS)
        found: dict[str, list[dict[str, bursts.Burst]]] = {name: [] for name in rows}
        for _ in range(self._plan.runs):
            for name, row in rows.items():
                with self._part(f"burst of {self._plan.backlog} pods, {name}"):
                    one = await bursts.measure(
                        self._plane, self._calls, row, pods=self._plan.backlog
                    )
                    found[name].append(one)
                    say(f"{name}: {digest.bursts([one])}")
        return {name: digest.bursts(runs) for name, runs in found.items()}

    async def quiet(self) -> dict[str, float]:
        """Percent of a core that the extender takes while no pod comes."""
        with self._part("quiet"):
            return dict(await quiet.measure(self._plane, self._calls, self._nodes))

    async def commands(self) -> dict[str, Any]:
        """What lines of the command line cost."""
        with self._part("commands"):
            return await asyncio.to_thread(
                commands.measure, self._plane.kubeconfig, self._plan.runs
            )

    async def _through(self, name: str, subject: Subject, url: str | None) -> Rate:
        scheduler = await asyncio.to_thread(self._plane.scheduler, url, name=name)
        try:
            pids = {**subject.pids(), "kube-scheduler": scheduler.pid}
            return await throughput.measure(self._calls, name, pods=self._plan.schedule, pids=pids)
        finally:
            scheduler.stop()

    @contextmanager
    def _part(self, what: str) -> Iterator[None]:
        self.loads.append((what, load()))
        with step(what):
            yield
