"""What was measured of workloads, and the nodes whose unit and GPUs their sizes are counted in."""

from pathlib import Path

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.wire.names import Names
from gpuinspect.cluster import snapshots
from gpuinspect.cluster.collect import NODES, ClusterSource, listed
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.usage_histories import (
    PLUGINS,
    Histories,
    of_file,
    of_plugins,
    of_snapshot,
)
from gpukube.errors import ForbiddenError


class Measured(msgspec.Struct, frozen=True):
    """Histories of workloads, and the nodes; no nodes where only a file of histories was read."""

    histories: Histories
    node_infos: tuple[NodeInfo, ...] = ()


def measured(source: ClusterSource, names: Names, history: Path | None) -> Measured:
    """Histories of a file, a snapshot or the plugins of a cluster, and its nodes.

    Args:
        source: a cluster or snapshot; not read where ``history`` is all there is.
        names: of the resources.
        history: file with histories.

    Raises:
        InspectError: a file cannot be read.
        KubeError: the pods of the device plugins cannot be listed.
        ConfigError: no credentials are found.
    """
    if source.snapshot is not None:
        snapshot = snapshots.read(source.snapshot)
        histories = of_snapshot(snapshot) if history is None else of_file(history)
        return Measured(histories, _node_infos(snapshot, names))
    if history is not None:
        return Measured(of_file(history))
    return _live(source, names)


def _live(source: ClusterSource, names: Names) -> Measured:
    with source.connect() as kube:
        try:
            nodes = [("Node", raw) for raw in listed(kube, NODES)]
        except ForbiddenError:
            nodes = []
        histories = of_plugins(kube, listed(kube, PLUGINS))
    return Measured(histories, _node_infos(snapshots.gather(nodes), names))


def _node_infos(snapshot: Snapshot, names: Names) -> tuple[NodeInfo, ...]:
    nodes = msgspec.structs.replace(snapshot, pods=(), raw={})
    return tuple(ledger_of(nodes, names).nodes().values())
