"""What ``gpushare replay`` replays: two files of a trace, or the cluster's own pods."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from gpucore.accounting.ledger import Ledger
from gpucore.scheduling.candidates import Candidates
from gpucore.simulate.jobs import TimedPod
from gpucore.simulate.traces import TraceNode, TracePod
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.trace import cluster_trace
from gpuinspect.commands.options.reading import Reader
from gpuinspect.commands.weeks import week_of_cluster, week_of_files
from gpuinspect.queries.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.sources.trace_files import read_nodes, read_pods


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
