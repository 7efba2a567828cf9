"""The cluster at one moment, with the values that the pages show."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.claims.facts import ClaimFacts
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE
from gpucore.explain.claims import explain_claims
from gpucore.explain.pod_states import Cluster, Explanation
from gpucore.model import PodRequest
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.fragmentation import fragments
from gpucore.units import GIB_BYTES, MILLI, NodeName
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import Schedulers, policy_of, schedulers_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.claims import KINDS, NOTHING, PodClaims
from gpuinspect.queries.explain import cluster_of, explain, is_known
from gpuinspect.queries.gpuhealth import UnhealthyGpu, unhealthy_gpus
from gpuinspect.queries.gpumap import (
    CellGroup,
    GpuCell,
    gpu_cells,
    grouped_cells,
    in_gib,
    with_fits,
)
from gpuinspect.queries.memory_in_use import Figures
from gpuinspect.queries.shares import view_of_gpus
from gpuinspect.queries.usage import UsageReport, grouped
from gpuinspect.queries.verified import VerifiedRow, verified_rows
from gpuinspect.queries.views import ClusterView, NodeSummary, in_natural_order, natural
from gpuinspect.queries.workload_sizes import WorkloadSizes
from gpuinspect.web.history import CLUSTER, Amounts, History
from gpuinspect.web.limits import most_pods
from gpuinspect.web.reasons import PendingReasons
from gpuinspect.web.sizing import CachedSizes

MOST_REPORTS: Final = 20
"""Groupings of usage that a frame caches; viewers choose the label."""


class Frame:
    """The cluster at one moment, with what pages derive from it.

    Attributes:
        taken: when it was read.
        error: why the next read failed; empty while reads succeed.
        figures: memory in use; ``None`` where it is unknown.
        note: what is unknown, and why; empty where all is known.
        of_file: it is a snapshot in a file; ``taken`` is when that was written.
        history: memory over the last hours.
        measured_sizes: reads what workloads used; ``None`` where nothing does.
        reasons_known: the pending pods were explained for a viewer, so that the next list is quick.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        names: Names,
        *,
        taken: datetime,
        figures: Figures | None = None,
        note: str = "",
        of_file: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.taken = taken
        self.figures = figures
        self.note = note
        self.error = ""
        self.of_file = of_file
        self.history = History()
        self.measured_sizes: CachedSizes | None = None
        self.reasons_known = False
        self._reports: dict[str, UsageReport] = {}
        self.ledger: Ledger = ledger_of(snapshot, names)
        self.view: ClusterView = in_natural_order(view_of_gpus(self.ledger, snapshot.nodes))
        kinds = min(KINDS, most_pods(len(snapshot.nodes)))
        self._claims = PodClaims(snapshot, self.ledger, kinds=kinds)
        self._reasons = PendingReasons(snapshot, self.ledger, self._claims, self.explain)

    @cached_property
    def waiting(self) -> tuple[tuple[Pod, PodRequest], ...]:
        """Pods that wait for GPUs, oldest first; a bound one does if no GPU of it is known."""
        pods = self.snapshot.raw_pods()
        requested = ((pod, self._requested(pod, raw)) for pod, raw in pods if self._may_wait(pod))
        pairs = [(pod, pod_request) for pod, pod_request in requested if pod_request is not None]
        return tuple(sorted(pairs, key=lambda pair: (pair[0].creation, natural(pair[0].name))))

    def _may_wait(self, pod: Pod) -> bool:
        """It waits if it requests GPUs."""
        if pod.finished:
            return False
        return not pod.node or not is_known(self.ledger.allocation(pod.uid))

    def _requested(self, pod: Pod, raw: msgspec.Raw) -> PodRequest | None:
        """The pod's own request; an empty one where its claims request GPUs.

        The GPUs of a bound pod with claims are those of its claims.
        """
        found = pod_request_of(pod, self.ledger.names)
        if pod.node:
            return found if found is None or self._claims.facts(pod, raw) is None else None
        return NOTHING if found is None and self._claims.facts(pod, raw) is not None else found

    @cached_property
    def candidates(self) -> Candidates:
        """The nodes as the scheduler sees them."""
        return candidates(self.snapshot, self.ledger)

    @cached_property
    def _cluster(self) -> Cluster:
        return cluster_of(self.snapshot, self.ledger, nodes=self.candidates)

    @cached_property
    def _schedulers(self) -> Schedulers:
        return schedulers_of(self.snapshot, self.ledger.names)

    @cached_property
    def policy(self) -> ClusterPolicy:
        """The policies of the cluster's extender."""
        return policy_of(self.snapshot)

    @cached_property
    def nodes(self) -> Mapping[NodeName, Node]:
        """The node objects by name."""
        return {node.name: node for node in self.snapshot.nodes}

    @cached_property
    def fragments(self) -> tuple[float, float]:
        """GPUs that are free, and how many of these the pods that usually come could not use.

        GPUs of cordoned and unready nodes are not free.
        """
        infos = {**self.ledger.nodes(), **self.candidates.node_infos}
        shown = [infos[node.name] for node in self.view.nodes if node.accepts_pods]
        free = sum(sum(node_info.free_parts().values()) for node_info in shown) / MILLI
        return free, sum(map(fragments, shown))

    @cached_property
    def verified(self) -> tuple[VerifiedRow, ...]:
        """Last results of ``gpushare verify``."""
        return verified_rows(self.snapshot, self.ledger)

    @cached_property
    def unhealthy(self) -> tuple[UnhealthyGpu, ...]:
        """Unhealthy GPUs with their reasons."""
        return unhealthy_gpus(self.snapshot, self.view)

    def sizes(self) -> WorkloadSizes | None:
        """What workloads request and used; ``None`` while it is being read."""
        if self.measured_sizes is None:
            return WorkloadSizes()
        return self.measured_sizes.latest(self.snapshot, self.ledger)

    @cached_property
    def cells(self) -> tuple[GpuCell, ...]:
        """Every GPU with its figures and pods."""
        return gpu_cells(self.view, self.in_use)

    def groups(self, by: str, nodes: Collection[str], gib: int = 0) -> tuple[CellGroup, ...]:
        """The GPUs of some nodes in groups; with ``gib``, where a share of that size fits."""
        cells = tuple(cell for cell in self.cells if cell.node in nodes)
        found = with_fits(cells, self.ledger, gib) if gib else cells
        return grouped_cells(found, self.nodes, by)

    @cached_property
    def amounts(self) -> Mapping[str, Amounts]:
        """Memory allocated and in use, in GiB, by node and for the cluster."""
        nodes: dict[str, Amounts] = {node.name: self._amounts(node) for node in self.view.nodes}
        allocated = in_gib(self.view.used, self.view.unit)
        return {CLUSTER: self._with_use(allocated, [cell.in_use for cell in self.cells]), **nodes}

    def _amounts(self, node: NodeSummary) -> Amounts:
        allocated = in_gib(node.used, self.view.unit)
        return self._with_use(allocated, [self.in_use(gpu.uuid) for gpu in node.gpus])

    @staticmethod
    def _with_use(allocated: float, gpus: Sequence[float | None]) -> Amounts:
        known = [used for used in gpus if used is not None]
        return Amounts(allocated, sum(known) if known else None, len(known) < len(gpus))

    def in_use(self, uuid: str) -> float | None:
        """Memory of a GPU in use, in GiB; ``None`` where it is unknown."""
        found = None if self.figures is None else self.figures.gpus.get(uuid)
        return None if found is None else found / GIB_BYTES

    def created(self, uid: str) -> str:
        """When the pod with this UID was created, RFC 3339; empty where there is none."""
        return self._creations.get(uid, "")

    @cached_property
    def _creations(self) -> Mapping[str, str]:
        return {pod.uid: pod.creation for pod in self.snapshot.pods}

    def report(self, by: str) -> UsageReport:
        """Usage in groups: ``namespace``, ``node``, ``model`` or ``label:KEY``."""
        found = self._reports.get(by)
        if found is None:
            if len(self._reports) >= MOST_REPORTS:
                self._reports.clear()  # other threads may fill it meanwhile
            found = grouped(self.snapshot, self.ledger.names, by, self.figures)
            self._reports[by] = found
        return found

    def node(self, name: str) -> NodeSummary | None:
        """The view of one node."""
        return next((node for node in self.view.nodes if node.name == name), None)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of this name."""
        pods = (p for p in self.snapshot.pods if (p.namespace, p.name) == (namespace, name))
        return next(pods, None)

    def reason(self, pod: Pod, pod_request: PodRequest) -> Explanation:
        """Why a pod is pending; for the list of all pending pods."""
        return self._reasons.of(pod, pod_request, self.candidates)

    def explain(self, pod: Pod) -> Explanation:
        """Why a pod is pending, or where it is placed."""
        facts = self._facts(pod)
        if facts is not None:
            return explain_claims(facts, self._claims.nodes, self.candidates)
        return explain(self.snapshot, pod, self._cluster, self._schedulers)

    def unseen(self, pod: Pod) -> str:
        """Why no scheduler that calls the extender sees a pending pod; empty where one may.

        Empty with claims as well: these are allocated by any kube-scheduler.
        """
        misses = self._schedulers.misses(pod.scheduler_name)
        return misses if misses and self._facts(pod) is None else ""

    def _facts(self, pod: Pod) -> ClaimFacts | None:
        """Of a pod with claims, or whose extended resource waits for one."""
        pod_request = pod_request_of(pod, self.ledger.names)
        raw = self.snapshot.raw_by_uid[pod.uid]
        return self._claims.facts_with_extended(pod, pod_request, raw)

    @cached_property
    def beside(self) -> tuple[object, ...]:
        """What pages show beside allocations: equal in two frames if it looks the same."""
        nodes = frozenset(node.name for node in self.view.nodes)
        objects = _fingerprint(self.snapshot, nodes)
        return objects, self._messages, self.verified, self.policy, self._schedulers

    @property
    def _messages(self) -> tuple[object, ...]:
        """What events report about pending pods, whose conditions are in their objects."""
        events = self.snapshot.events
        about = (events.get((pod.namespace, pod.name), ()) for pod, _ in self.waiting)
        return tuple(
            tuple((event.reason, event.message) for event in sorted(found, key=lambda e: e.when))
            for found in about
        )

    def shows_the_same(self, other: "Frame") -> bool:
        """Whether all pages would be equal except for their time."""
        return (
            (self.error, self.note) == (other.error, other.note)
            and (not self.of_file or self.taken == other.taken)
            and self.view == other.view
            and self.waiting == other.waiting
            and self.unhealthy == other.unhealthy
            and self.figures == other.figures
            and self.beside == other.beside
        )


def _fingerprint(snapshot: Snapshot, nodes: Collection[str]) -> tuple[object, ...]:
    """Equal for two snapshots whose objects are equal in what pages show of them.

    Args:
        nodes: names of those with GPUs, whose pods count.
    """
    return (
        tuple(map(_without_heartbeat, snapshot.nodes)),
        tuple(_pods_on(snapshot, nodes)),
        tuple(tuple(map(bytes, snapshot.all(kind))) for kind in (CLAIM, CLASS, TEMPLATE)),
    )


def _without_heartbeat(node: Node) -> Node:
    """The node without what kubelet and controllers write again and again."""
    return msgspec.structs.replace(node, annotations={}, resource_version="")


def _pods_on(snapshot: Snapshot, nodes: Collection[str]) -> Iterator[tuple[object, ...]]:
    for pod in snapshot.pods:
        if pod.node in nodes:
            yield pod.uid, pod.labels, pod.finished
