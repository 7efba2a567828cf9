"""``gpushare replay``: what a policy would leave unallocated of a cluster, by a trace of pods.

Chance and the clock are here; deciding is the core's.
"""

import random
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final

import msgspec
import typer

from gpucore.accounting.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.simulate.arrivals import drawn, once, shuffled
from gpucore.simulate.jobs import WeekPlan
from gpucore.simulate.replay import Replayed
from gpucore.simulate.replay import replay as replayed
from gpucore.simulate.traces import TraceError, TraceNode, TracePod
from gpucore.units import MILLI
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.trace import cluster_trace
from gpuinspect.commands.options.formats import Format, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, fail, reading
from gpuinspect.commands.weeks import WeekTrace, print_weeks, week_of_cluster, week_of_files
from gpuinspect.errors import InspectError
from gpuinspect.queries.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.sources.trace_files import read_nodes, read_pods
from gpuinspect.terminal.progress import shown

ARRIVALS: Final = 1.3
LOAD: Final = WeekPlan().load
GANGS: Final = WeekPlan().gangs


class PlacementPolicyName(StrEnum):
    """Values of ``--policy``."""

    BINPACK = "binpack"
    SPREAD = "spread"
    FRAGMENTATION = "fragmentation"
    RANDOM = "random"
    PUBLISHED = "published"
    CLAIMS_PLAIN = "claims-plain"
    CLAIMS_BINPACK = "claims-binpack"
    CLAIMS_FRAGMENTATION = "claims-fragmentation"
    CLAIMS_PLAIN_PACKED = "claims-plain-packed"
    CLAIMS_BINPACK_PACKED = "claims-binpack-packed"
    CLAIMS_FRAGMENTATION_PACKED = "claims-fragmentation-packed"
    CLAIMS_BINPACK_NOMINATED = "claims-binpack-nominated"
    CLAIMS_FRAGMENTATION_NOMINATED = "claims-fragmentation-nominated"


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


@reading
def replay(
    reader: Reader,
    *,
    nodes: Annotated[Path | None, typer.Option(help="CSV of nodes", metavar="CSV")] = None,
    pods: Annotated[Path | None, typer.Option(help="CSV of pods", metavar="CSV")] = None,
    from_cluster: Annotated[
        bool,
        typer.Option(
            "--from-cluster",
            help="replay the pods with GPUs of the cluster, ended ones too, on its nodes",
        ),
    ] = False,
    policy: Annotated[PlacementPolicyName, typer.Option(help="how GPUs and nodes are chosen")],
    arrivals: Annotated[
        float, typer.Option(help="stop when requests reach this multiple of all GPUs", min=0.0)
    ] = ARRIVALS,
    draw: Annotated[
        Draw,
        typer.Option(
            help="any: each arrival is any pod of the trace; once: every pod of the trace once, and"
            " random copies up to that multiple, shuffled, on nodes in random order"
        ),
    ] = Draw.ANY,
    seed: Annotated[int, typer.Option(help="random seed for drawing pods from the trace")] = 0,
    seeds: Annotated[
        int, typer.Option(help="number of runs, with this and the following seeds", min=1)
    ] = 1,
    week: Annotated[
        bool,
        typer.Option(
            "--week",
            help="simulate a week in which pods arrive, wait and end; needs creation_time and"
            " deletion_time of pods",
        ),
    ] = False,
    load: Annotated[
        float, typer.Option(help="of --week: GPU time requested, as a multiple of all", min=0.01)
    ] = LOAD,
    gangs: Annotated[
        float,
        typer.Option(
            help="of --week: part of the pods with exclusive GPUs that come as gangs of 2, 4 or 8",
            min=0.0,
            max=1.0,
        ),
    ] = GANGS,
    lifetimes: Annotated[
        Path | None,
        typer.Option(
            help="of --week: CSV with the lifetimes for pods without times, by class of pod",
            metavar="CSV",
        ),
    ] = None,
    defragmented: Annotated[
        bool,
        typer.Option("--defragment", help="of --week: move pods as gpushare defrag does"),
    ] = False,
    every: Annotated[int, typer.Option(help="take every n-th node only", min=1)] = 1,
    output: Output = Format.TABLE,
) -> None:
    """Draw pods from a trace until they request more GPUs than exist; count unallocated GPUs.

    Figures are in exclusive GPUs: a pod that requests 460 of 1000 counts 0.46. The policy published
    is fragmentation gradient descent as its paper describes it, to compare with. With --week, pods
    also end: GPU hours, and waiting times in seconds by class of pod.
    """
    if not week and (load != LOAD or gangs != GANGS or lifetimes or defragmented):
        raise typer.BadParameter("--load, --gangs, --lifetimes and --defragment need --week")
    if week and (arrivals != ARRIVALS or draw is not Draw.ANY):
        raise typer.BadParameter("--week has its own arrivals: leave out --arrivals and --draw")
    runs = range(seed, seed + seeds)
    if week:
        try:
            if from_cluster:
                hosts, timed = week_of_cluster(*_cluster(reader, nodes or pods or lifetimes))
            else:
                hosts, timed = week_of_files(*_both(nodes, pods), lifetimes, seed)
            whole = WeekTrace(hosts[::every], timed, WeekPlan(load=load, gangs=gangs))
            weeks = [whole.report(policy, one, defragmenting=defragmented) for one in runs]
        except (InspectError, TraceError) as error:
            fail(error)
        print_weeks(weeks, policy, output)
        return
    try:
        if from_cluster:
            hosts, kinds = cluster_trace(*_cluster(reader, nodes or pods))
        else:
            hosts, kinds = _of_files(nodes, pods)
        trace = Trace(hosts[::every], kinds, draw, arrivals)
    except InspectError as error:
        fail(error)
    reports = [trace.report(policy, one) for one in runs]
    if output.is_document:
        emit(reports[0] if seeds == 1 else Reports(reports, _mean(reports)), output)
    elif output is Format.NAME:
        names_only("policy", [str(policy)])
    else:
        sys.stdout.write(_table(reports[0]) if seeds == 1 else _rows(reports))


def _both(nodes: Path | None, pods: Path | None) -> tuple[Path, Path]:
    if nodes is None or pods is None:
        raise typer.BadParameter("give --nodes and --pods, or --from-cluster")
    return nodes, pods


def _of_files(nodes: Path | None, pods: Path | None) -> tuple[list[TraceNode], list[TracePod]]:
    of_nodes, of_pods = _both(nodes, pods)
    return read_nodes(of_nodes), read_pods(of_pods)


def _cluster(reader: Reader, file: Path | None) -> tuple[Snapshot, Ledger, Candidates]:
    if file is not None:
        raise typer.BadParameter("--from-cluster takes no files of nodes, pods and lifetimes")
    snapshot = reader.source.read(*COUNTED, DEVICE_CLASSES, claim_templates(""))
    ledger = ledger_of(snapshot, reader.names)
    return snapshot, ledger, candidates(snapshot, ledger)


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
