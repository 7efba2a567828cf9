"""``gpushare replay``: what a policy would leave unallocated of a cluster, by a trace of pods.

The flags are here; a cluster that only fills and a week have modules of their own.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from gpucore.accounting.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.simulate.jobs import TimedPod, WeekPlan
from gpucore.simulate.traces import TraceError, TraceNode, TracePod
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.trace import cluster_trace
from gpuinspect.commands.fills import Draw, Trace, print_fills
from gpuinspect.commands.options.amounts import finite
from gpuinspect.commands.options.formats import Format, Output
from gpuinspect.commands.options.reading import Reader, fail, reading
from gpuinspect.commands.weeks import WeekTrace, print_weeks, week_of_cluster, week_of_files
from gpuinspect.errors import InspectError
from gpuinspect.sources.trace_files import read_nodes, read_pods

ARRIVALS: Final = 1.3
MOST_LOAD: Final = 1000
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
        float,
        typer.Option(
            help="stop when requests reach this multiple of all GPUs",
            min=0.01,
            max=MOST_LOAD,
            callback=finite,
        ),
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
        float,
        typer.Option(
            help="of --week: GPU time requested, as a multiple of all",
            min=0.01,
            max=MOST_LOAD,
            callback=finite,
        ),
    ] = LOAD,
    gangs: Annotated[
        float,
        typer.Option(
            help="of --week: part of the pods with exclusive GPUs that come as gangs of 2, 4 or 8",
            min=0.0,
            max=1.0,
            callback=finite,
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
    plan, runs = WeekPlan(load=load, gangs=gangs), range(seed, seed + seeds)
    source = ReplaySource(reader, from_cluster, nodes, pods, lifetimes)
    if week:
        if arrivals != ARRIVALS or draw is not Draw.ANY:
            raise typer.BadParameter("--week has its own arrivals: leave out --arrivals and --draw")
        _replay_weeks(source, plan, policy, runs, every=every, moving=defragmented, output=output)
        return
    if plan != WeekPlan() or lifetimes or defragmented:
        raise typer.BadParameter("--load, --gangs, --lifetimes and --defragment need --week")
    try:
        hosts, kinds = source.to_fill()
    except InspectError as error:
        fail(error)
    trace = Trace(hosts[::every], kinds, draw, arrivals)
    print_fills([trace.report(policy, one) for one in runs], policy, output)


class ReplaySource(msgspec.Struct, frozen=True):
    """Where nodes and pods are read.

    Attributes:
        reader: of the cluster, with ``from_cluster``.
        nodes, pods: files of a trace.
        lifetimes: file of the lifetimes of pods without times, for a week.
    """

    reader: Reader
    from_cluster: bool
    nodes: Path | None
    pods: Path | None
    lifetimes: Path | None = None

    def to_fill(self) -> tuple[Sequence[TraceNode], Sequence[TracePod]]:
        """Nodes, and pods that never end.

        Raises:
            BadParameter: the flags name neither two files nor the cluster alone.
            InspectError: what they name cannot be read, or has no pods.
        """
        if self.from_cluster:
            return cluster_trace(*self._cluster())
        nodes, pods = self._files()
        return read_nodes(nodes), read_pods(pods)

    def for_week(self, seed: int) -> tuple[Sequence[TraceNode], Sequence[TimedPod]]:
        """Nodes, and pods with lifetimes; ``seed`` chooses those from the file ``lifetimes``.

        Raises:
            BadParameter, InspectError: as :meth:`to_fill`.
        """
        if self.from_cluster:
            return week_of_cluster(*self._cluster())
        return week_of_files(*self._files(), self.lifetimes, seed)

    def _files(self) -> tuple[Path, Path]:
        if self.nodes is None or self.pods is None:
            raise typer.BadParameter("give --nodes and --pods, or --from-cluster")
        return self.nodes, self.pods

    def _cluster(self) -> tuple[Snapshot, Ledger, Candidates]:
        if self.nodes or self.pods or self.lifetimes:
            raise typer.BadParameter("--from-cluster takes no files of nodes, pods and lifetimes")
        snapshot = self.reader.source.read(*COUNTED, DEVICE_CLASSES, claim_templates(""))
        ledger = ledger_of(snapshot, self.reader.names)
        return snapshot, ledger, candidates(snapshot, ledger)


def _replay_weeks(
    source: ReplaySource,
    plan: WeekPlan,
    policy: str,
    seeds: range,
    *,
    every: int,
    moving: bool,
    output: Format,
) -> None:
    try:
        nodes, pods = source.for_week(seeds.start)
        trace = WeekTrace(nodes[::every], pods, plan)
        weeks = [trace.report(policy, seed, defragmenting=moving) for seed in seeds]
    except (InspectError, TraceError) as error:
        fail(error)
    print_weeks(weeks, policy, output)
