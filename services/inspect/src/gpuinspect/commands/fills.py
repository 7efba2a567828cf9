"""A cluster that only fills, of ``gpushare replay``.

Chance and the clock are here; deciding is the core's.
"""

import random
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean

import msgspec

from gpucore.simulate.replay import Replayed
from gpucore.simulate.replay import replay as replayed
from gpucore.simulate.traces import TraceNode, TracePod, drawn, once, shuffled
from gpucore.units import MILLI
from gpuinspect.commands.options.formats import Format, emit, names_only
from gpuinspect.terminal.progress import shown


class Draw(StrEnum):
    """Values of ``--draw``."""

    ANY = "any"
    ONCE = "once"


class Report(msgspec.Struct, frozen=True):
    """What is printed: figures in exclusive GPUs, but for the counts of pods and the seconds."""

    policy: str
    arrivals: float
    seed: int
    gpus: int
    requested: float
    placed: float
    failed: float
    unallocated_gpus: float
    requested_pods: int
    failed_pods: int
    seconds: float


class Reports(msgspec.Struct, frozen=True):
    """What is printed of several runs."""

    runs: Sequence[Report]
    mean_unallocated_gpus: float


class Trace(msgspec.Struct, frozen=True):
    """Nodes and pods, and how arrivals are drawn from these."""

    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]
    draw: Draw
    arrivals: float

    def report(self, policy: str, seed: int) -> Report:
        """The figures of one run."""
        chance = random.Random(seed)  # noqa: S311 - a repeatable draw, no secret
        started = time.monotonic()
        gpus = sum(node.gpus for node in self.nodes)
        nodes, pods = self.nodes, drawn(self.pods, chance.randrange)
        if self.draw is Draw.ONCE:
            milli = round(self.arrivals * gpus * MILLI)
            pods = iter(once(self.pods, milli, chance.randrange))
            nodes = shuffled(nodes, chance.randrange)
        with shown("GPUs requested", self.arrivals * gpus) as progress:
            result = replayed(
                nodes,
                pods,
                policy,
                workload=self.pods,
                pick=chance.randrange,
                target=self.arrivals,
                progress=progress.reach,
            )
        return _reported(result, policy, self.arrivals, seed, round(time.monotonic() - started, 3))


def print_fills(reports: Sequence[Report], policy: str, output: Format) -> None:
    """In the format of ``-o``."""
    single = len(reports) == 1
    if output.is_document:
        emit(reports[0] if single else Reports(reports, _mean(reports)), output)
    elif output is Format.NAME:
        names_only("policy", [str(policy)])
    else:
        sys.stdout.write(_table(reports[0]) if single else _rows(reports))


def _reported(result: Replayed, policy: str, arrivals: float, seed: int, seconds: float) -> Report:
    figures = msgspec.structs.asdict(result)
    return Report(policy=str(policy), arrivals=arrivals, seed=seed, seconds=seconds, **figures)


def _mean(reports: Sequence[Report]) -> float:
    return fmean(report.unallocated_gpus for report in reports)


def _rows(reports: Sequence[Report]) -> str:
    lines = [f"{'SEED':>4}  {'UNALLOCATED_GPUS':>16}  {'FAILED_PODS':>11}  {'SECONDS':>7}"]
    lines += [
        f"{one.seed:>4}  {one.unallocated_gpus:>16.2f}  {one.failed_pods:>11}  {one.seconds:>7.1f}"
        for one in reports
    ]
    return "\n".join([*lines, f"mean  {_mean(reports):>16.2f}", ""])


def _table(report: Report) -> str:
    rows = [(name.upper(), _text(value)) for name, value in msgspec.structs.asdict(report).items()]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in rows)


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
