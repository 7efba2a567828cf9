"""Shares that are not used: pods that had no memory in use for some time, or ran no work.

Without memory in use there is no CUDA context, so that such a pod runs no work either. That a pod
with memory in use runs none is known where the driver reports the utilization by process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.sizing.idle_eviction import unknown_reason
from gpucore.sizing.usage_documents import USAGE, NodeUsage, PodMemoryUse
from gpucore.units import MemoryUnit
from gpucore.wire.names import IDLE_ALLOWED, Names
from gpucore.wire.pod.controllers import controller_of, workload_of
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.release import plugins_in
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.memory_in_use import NO_PLUGIN, NO_PODS, missing
from gpuinspect.queries.shares import view_of_gpus
from gpuinspect.queries.views import ClusterView, NodeSummary, PodSummary
from gpukube.plugin_pods import plugin_addresses
from gpukube.plugins import PluginReplies, read_plugins

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

_HOUR: Final = 3600.0


class IdleShare(msgspec.Struct, frozen=True):
    """A pod that holds GPU memory and does not use it, or runs no work on its GPUs.

    Attributes:
        kind, workload: of its controller; ``Pod`` and its own name without one.
        units: of memory that it holds.
        gpus: the part of GPUs that it holds, 1 for a whole GPU.
        idle_seconds: for how long it has been so.
        since: its creation, RFC 3339.
        used_bytes: of its GPUs' memory, by a pod that runs no work.
    """

    namespace: str
    name: str
    uid: str
    kind: str
    workload: str
    node: str
    units: int
    gpus: float
    idle_seconds: float
    since: str
    used_bytes: int = 0

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that were held and not used."""
        return self.gpus * self.idle_seconds / _HOUR

    def cost(self, price: float) -> float:
        """What they cost at this price of an hour of one GPU."""
        return self.gpu_hours * price


class IdleTimes(msgspec.Struct, frozen=True):
    """Since when the GPUs of a pod have been idle, in Unix seconds; 0 for a pod that uses them.

    Attributes:
        no_memory_since: no memory of any of them is in use; ``None`` where that is not known.
        no_work_since: the pod runs no work on any; 0 also where that is not known.
    """

    no_memory_since: float | None
    no_work_since: float = 0.0
    used_bytes: int = 0

    @property
    def since(self) -> float:
        """The earlier of both, where there is one."""
        return min(filter(None, (self.no_memory_since, self.no_work_since)), default=0.0)


class IdleShares(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        shares: longest idle first.
        allowed: number of pods that are left out, since they may be idle.
        unknown: number of pods of which it is not known whether they use memory: also those whose
            measurement is old, or began before the pod was created.
        note: why memory in use is not all known; empty where it is.
    """

    shares: tuple[IdleShare, ...]
    unit: MemoryUnit
    allowed: int
    unknown: int
    note: str


def idle_shares(
    kube: "BlockingClient",
    snapshot: Snapshot,
    names: Names,
    *,
    namespace: str,
    seconds: float,
    at: datetime,
) -> IdleShares:
    """The pods of a namespace that have used nothing for some time.

    Args:
        snapshot: nodes and pods of all namespaces.
        namespace: whose pods; empty for all.
        seconds: for at least so long.
    """
    plugins = plugin_addresses(plugins_in(snapshot))
    replies = read_plugins(kube, plugins, USAGE)
    note = missing(replies) if plugins else NO_PODS if "Pod" in snapshot.missing else NO_PLUGIN
    return of_replies(
        snapshot, replies, names, namespace=namespace, seconds=seconds, at=at, note=note
    )


def of_replies(
    snapshot: Snapshot,
    replies: PluginReplies[NodeUsage],
    names: Names,
    *,
    namespace: str,
    seconds: float,
    at: datetime,
    note: str = "",
) -> IdleShares:
    """As :func:`idle_shares`, from what the device plugins replied."""
    view = view_of_gpus(ledger_of(snapshot, names), snapshot.nodes)
    pairs = snapshot.raw_pods()
    pods = {str(pod.uid): (pod, raw) for pod, raw in pairs if namespace in {"", pod.namespace}}
    found: list[IdleShare] = []
    allowed = unknown = 0
    for node, held, times in holders(view, replies):
        if held.uid not in pods:
            continue
        pod, raw = pods[held.uid]
        known = times.no_memory_since is not None
        if known and not times.since:
            continue
        usage = replies.nodes.get(node.name)
        since, measured_at = times.since if known else None, usage.measured_at if usage else 0.0
        if unknown_reason(pod, since, measured_at, at.timestamp()):
            unknown += 1
        elif at.timestamp() - times.since < seconds:
            continue
        elif pod.labels.get(IDLE_ALLOWED) == "true":
            allowed += 1
        else:
            share = _share(node, held, pod, raw, at.timestamp() - times.since)
            found.append(msgspec.structs.replace(share, used_bytes=times.used_bytes))
    found.sort(key=lambda each: (-each.idle_seconds, each.namespace, each.name))
    return IdleShares(tuple(found), view.unit, allowed, unknown, note)


def holders(
    view: ClusterView, replies: PluginReplies[NodeUsage]
) -> Iterator[tuple[NodeSummary, PodSummary, IdleTimes]]:
    """Each pod with GPUs, and since when all of them have been idle."""
    for node in view.nodes:
        rows = _rows(replies.nodes.get(node.name))
        for held in _by_pod(node.pods):
            mine = [rows.get((held.namespace, held.name, index)) for index in held.gpus]
            if mine:
                yield node, held, _idle_times(mine)


def _by_pod(rows: Iterable[PodSummary]) -> Iterable[PodSummary]:
    """Each pod once: it may have several claims."""
    found: dict[str, PodSummary] = {}
    for row in rows:
        known = found.get(row.uid)
        found[row.uid] = row if known is None else _with_claim(known, row)
    return found.values()


def _with_claim(pod: PodSummary, row: PodSummary) -> PodSummary:
    """The pod with what it holds by another claim."""
    indexes = {*pod.gpus, *row.gpus}
    gpus = {index: pod.gpus.get(index, 0) + row.gpus.get(index, 0) for index in sorted(indexes)}
    return msgspec.structs.replace(pod, gpus=gpus, group=(*pod.group, *row.group))


def _idle_times(rows: Sequence[PodMemoryUse | None]) -> IdleTimes:
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return IdleTimes(None)
    return IdleTimes(
        latest([row.idle_since for row in known]),
        latest([row.no_work_since for row in known]),
        sum(row.used_bytes for row in known),
    )


def latest(times: Sequence[float]) -> float:
    """The last of these times; 0 where one of them is 0."""
    return max(times) if all(times) else 0.0


def _rows(usage: NodeUsage | None) -> Mapping[tuple[str, str, int], PodMemoryUse]:
    gpus = usage.gpus if usage is not None else ()
    return {(row.namespace, row.name, gpu.index): row for gpu in gpus for row in gpu.pods}


def _share(
    node: NodeSummary, held: PodSummary, pod: Pod, raw: bytes, idle_seconds: float
) -> IdleShare:
    kind, workload = workload_of(pod, controller_of(raw))
    totals = {gpu.index: gpu.total for gpu in node.gpus}
    shared = {index: units for index, units in held.gpus.items() if index not in held.group}
    parts = [units / totals[index] for index, units in shared.items() if totals.get(index)]
    return IdleShare(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        kind=kind,
        workload=workload,
        node=node.name,
        units=sum(held.gpus.values()),
        gpus=sum(parts) + len(held.group),
        idle_seconds=idle_seconds,
        since=pod.creation,
    )
