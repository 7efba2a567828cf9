"""A cluster as a trace: its nodes without pods that request GPUs, and the pods with GPUs that came.

The pods of all namespaces count once, whether they wait, run or have ended, and whether they
request GPUs by resources or by claims, as for the mix of the fragmentation policy. What other pods
request of a node is not available to the replay.
"""

from collections import Counter
from collections.abc import Container, Sequence

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model.constraints import CPU
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.host_rooms import MEMORY, allowed_models, gpu_model, usual_unit
from gpucore.simulate.jobs import TimedPod
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.steps import complete
from gpucore.units import MILLI, NodeName, PodUid
from gpucore.wire.constraints import all_constraints
from gpucore.wire.pod.container_statuses import last_end
from gpucore.wire.pod.spec import Pod, created
from gpucore.workload.known_selectors import in_turn, weights_by_namespace
from gpucore.workload.pod_mix import PodKind
from gpuinspect.cluster.mix import cluster_arrivals
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError


def cluster_trace(
    snapshot: Snapshot, ledger: Ledger, nodes: Candidates
) -> tuple[list[TraceNode], list[TracePod]]:
    """Nodes and pods for a replay; a share is measured in the most frequent size of a GPU.

    Raises:
        InspectError: the cluster has no GPUs, or no pods with GPUs, or shares that are too large.
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    hosts, pods = _traced(snapshot, ledger, nodes)
    return hosts, [one for _, one in pods]


class ClusterWeek(msgspec.Struct, frozen=True):
    """The cluster's pods with lifetimes.

    Attributes:
        ended: pods whose end is known; others have run at least as long as they count.
        seconds: from the oldest pod to the newest creation or end.
    """

    nodes: Sequence[TraceNode]
    pods: Sequence[TimedPod]
    ended: int
    seconds: float


def cluster_week(snapshot: Snapshot, ledger: Ledger, nodes: Candidates) -> ClusterWeek:
    """Nodes, and the pods that have started, with their times from creation to end or until now.

    Now is the newest creation or end of a pod.

    Raises:
        InspectError: the cluster has no GPUs, or no pods with GPUs have started.
        WireError: as :func:`cluster_trace`.
    """
    hosts, pods = _traced(snapshot, ledger, nodes)
    started = [(pod, one) for pod, one in pods if pod.node and created(pod)]
    if not started:
        raise InspectError("no pods with GPUs have started in the cluster")
    raws = snapshot.raw_pods()
    ends = {pod.uid: last_end(raw) for pod, raw in raws if pod.finished}
    ended = [pod for pod, _ in started if ends.get(pod.uid)]
    now = max(*ends.values(), *(created(pod) for pod, _ in started), 0.0)
    return ClusterWeek(
        hosts,
        [
            TimedPod(one, max((ends.get(pod.uid) or now) - created(pod), 0.0))
            for pod, one in started
        ],
        ended=len(ended),
        seconds=now - min(created(pod) for pod, _ in started),
    )


def _traced(
    snapshot: Snapshot, ledger: Ledger, nodes: Candidates
) -> tuple[list[TraceNode], list[tuple[Pod, TracePod]]]:
    """Nodes, and each pod with its row of a trace.

    Raises:
        InspectError: the cluster has no GPUs, or no pods with GPUs, or shares that are too large.
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    infos = nodes.node_infos
    sizes = Counter(info.shape.largest_gpu for info in infos.values() if info.devices)
    arrivals = cluster_arrivals(snapshot, ledger.names)
    if not sizes or not arrivals:
        raise InspectError("the cluster has no GPUs, or no pods that request them")
    pairs = ((infos[name], node) for name, node in nodes.nodes.items())
    namespaces = complete(weights_by_namespace((one, 1.0) for one in arrivals.values()))
    models = complete(allowed_models(in_turn(namespaces), pairs))
    unit, ((units, _), *_) = complete(usual_unit(infos.values())), sizes.most_common(1)
    kinds = {uid: one.kind_on(models(one.selector), unit) for uid, one in arrivals.items()}
    with_gpus = [pod for pod in snapshot.pods if pod.uid in kinds]
    traced = [(pod, _trace_pod(pod.name, kinds[pod.uid], units)) for pod in with_gpus]
    pods = [(pod, one) for pod, one in traced if one is not None]
    if not pods:
        raise InspectError("every pod requests a larger share than the most frequent GPU has")
    others = _requested_by_others(snapshot, kinds.keys())
    hosts = [_trace_node(info, nodes, others) for info in infos.values() if info.devices]
    return hosts, pods


def _requested_by_others(
    snapshot: Snapshot, with_gpus: Container[PodUid]
) -> Counter[tuple[NodeName, str]]:
    """What other pods request, by node and resource."""
    found: Counter[tuple[NodeName, str]] = Counter()
    for pod, raw in snapshot.raw_pods():
        if pod.node and not pod.finished and pod.uid not in with_gpus:
            for name, amount in all_constraints(raw).requests:
                found[pod.node, name] += amount
    return found


def _trace_node(
    node_info: NodeInfo, nodes: Candidates, others: Counter[tuple[NodeName, str]]
) -> TraceNode:
    name, offered = node_info.name, nodes.nodes[node_info.name].allocatable
    cpu = offered.get(CPU, 1 << 40) - others[name, CPU]
    memory = offered.get(MEMORY, 1 << 60) - others[name, MEMORY]
    gpus = sum(device.healthy for device in node_info.devices.values())
    return TraceNode(name, max(cpu, 0), max(memory, 0) >> 20, gpus, gpu_model(node_info))


def _trace_pod(name: str, kind: PodKind, units: int) -> TracePod | None:
    """``None`` for a share that is larger than the GPUs."""
    milli = kind.milli(units)
    if milli > MILLI:
        return None
    models = frozenset(kind.models)
    return TracePod(name, kind.cpu_milli, kind.memory_mib, kind.gpus, milli, models)
