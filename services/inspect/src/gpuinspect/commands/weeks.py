"""Simulated weeks of ``gpushare replay --week``: chance and the clock; deciding is the core's."""

import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.defrag.week_moves import WeekMoves
from gpucore.scheduling.candidates import Candidates
from gpucore.simulate.jobs import DAY, TimedPod, WeekPlan, jobs, with_lifetimes
from gpucore.simulate.traces import TraceNode
from gpucore.simulate.week import fits_empty, week
from gpucore.simulate.weekfigures import WaitingTimes
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.trace import cluster_week
from gpuinspect.commands.options.formats import Format, emit, names_only
from gpuinspect.commands.options.reading import note
from gpuinspect.sources.trace_files import read_lifetimes, read_nodes, read_pods
from gpuinspect.terminal.output import align_rows

FEWEST_ENDED: Final = 100
"""Pods whose end must be known for lifetimes to say much."""
_HEADS: Final = ("CLASS", "JOBS", "MEAN", "P50", "P95")


class WeekReport(msgspec.Struct, frozen=True):
    """What is printed: hours of GPUs, and waiting times in seconds by class of pod."""

    policy: str
    load: float
    defragmented: bool
    seed: int
    gpus: int
    jobs: int
    gpu_hours: float
    allocated_gpu_hours: float
    wasted_gpu_hours: float
    stranded_gpu_hours: float
    moves: int
    waiting: Mapping[str, WaitingTimes]
    seconds: float


class WeekTrace(msgspec.Struct, frozen=True):
    """Nodes, pods with lifetimes, and how jobs come."""

    nodes: Sequence[TraceNode]
    pods: Sequence[TimedPod]
    plan: WeekPlan

    def report(self, policy: str, seed: int, *, defragmenting: bool = False) -> WeekReport:
        """The figures of one week; the jobs depend on the seed alone.

        Raises:
            TraceError: no pod with GPUs fits the empty cluster.
        """
        chance = random.Random(seed)  # noqa: S311 - a repeatable draw, no secret
        started = time.monotonic()
        gpus = sum(node.gpus for node in self.nodes)
        fits = fits_empty(self.nodes)
        found = jobs(self.pods, gpus, self.plan, pick=chance.randrange, fits=fits)
        figures = week(
            self.nodes,
            found,
            policy,
            self.plan,
            workload=[each.pod for each in self.pods],
            pick=chance.randrange,
            moves=WeekMoves(self.nodes, policy) if defragmenting else None,
        )
        return WeekReport(
            policy=str(policy),
            load=self.plan.load,
            defragmented=defragmenting,
            seed=seed,
            gpus=gpus,
            jobs=len(found),
            gpu_hours=round(figures.measured, 1),
            allocated_gpu_hours=round(figures.allocated, 1),
            wasted_gpu_hours=round(figures.wasted, 1),
            stranded_gpu_hours=round(figures.stranded, 1),
            moves=figures.moves,
            waiting={str(name): value for name, value in figures.waiting.items()},
            seconds=round(time.monotonic() - started, 1),
        )


class WeekReports(msgspec.Struct, frozen=True):
    """What is printed of several weeks."""

    runs: Sequence[WeekReport]


def week_of_files(
    nodes: Path, pods: Path, lifetimes: Path | None, seed: int
) -> tuple[Sequence[TraceNode], Sequence[TimedPod]]:
    """Nodes and pods of files.

    Args:
        lifetimes: of pods in ``pods`` that have no times; chosen by ``seed``.

    Raises:
        InspectError: a file cannot be read, or lacks a column.
    """
    if lifetimes is None:
        return read_nodes(nodes), read_lifetimes(pods)
    chance = random.Random(seed)  # noqa: S311 - a repeatable draw, no secret
    known = read_lifetimes(lifetimes)
    return read_nodes(nodes), with_lifetimes(read_pods(pods), known, chance.randrange)


def week_of_cluster(
    snapshot: Snapshot, ledger: Ledger, nodes: Candidates
) -> tuple[Sequence[TraceNode], Sequence[TimedPod]]:
    """Nodes and pods of the cluster; a remark where its history is too short.

    Raises:
        InspectError: it has no GPUs, or no pods with GPUs have started.
    """
    found = cluster_week(snapshot, ledger, nodes)
    days = found.seconds / DAY
    if found.ended < FEWEST_ENDED or days < WeekPlan().days:
        note(
            f"the history is short: {days:.1f} days, and the end of {found.ended} of"
            f" {len(found.pods)} pods is known; the others count as if they ended now"
        )
    return found.nodes, found.pods


def print_weeks(runs: Sequence[WeekReport], policy: str, output: Format) -> None:
    """In the format of ``-o``."""
    if output.is_document:
        emit(runs[0] if len(runs) == 1 else WeekReports(runs), output)
    elif output is Format.NAME:
        names_only("policy", [str(policy)])
    else:
        sys.stdout.write("\n".join(map(_table, runs)))


def _table(report: WeekReport) -> str:
    fields = msgspec.structs.asdict(report)
    fields.pop("waiting")
    width = max(map(len, fields))
    lines = [f"{name.upper():<{width}}  {value}\n" for name, value in fields.items()]
    rows = [
        _HEADS,
        *(
            (name, str(one.jobs), *(f"{value:.0f}s" for value in (one.mean, one.p50, one.p95)))
            for name, one in report.waiting.items()
        ),
    ]
    return "".join(lines) + "\n" + align_rows(rows)
