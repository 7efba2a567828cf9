"""What is known of a pod and of its cluster, and the state and explanation that follow from it."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.explain.groups import Group
from gpucore.gang.members import Members
from gpucore.model import FitError, PodRequest
from gpucore.model.constraints import UNCONSTRAINED, PodConstraints
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.pending_pods import Nominations
from gpucore.units import NodeName
from gpucore.wire.pod.gangs import Gang
from gpucore.wire.pod.scheduler_events import SchedulerRecord
from gpucore.wire.pod.spec import Pod


class PodFacts(msgspec.Struct, frozen=True):
    """What is known of the pod that is explained.

    Attributes:
        pod_request: what it requests of GPUs; ``None`` for nothing.
        unseen: why no scheduler that calls the extender sees it; empty where one may.
        members: the pods of its gang; ``None`` where it has none.
        gang: its gang, with the size of a PodGroup; ``None``: as the pod alone states it.
    """

    pod: Pod
    pod_request: PodRequest | None
    constraints: PodConstraints = UNCONSTRAINED
    scheduler_record: SchedulerRecord = SchedulerRecord()
    unseen: str = ""
    members: Members | None = None
    gang: Gang | None = None


class Cluster(msgspec.Struct, frozen=True):
    """What is known of the cluster.

    Attributes:
        ledger: allocations of the whole cluster; a gang is tried on it.
        nodes: every node, by name; they must stay as they are while a question is answered.
    """

    ledger: Ledger
    nodes: Candidates
    policy: ClusterPolicy = ClusterPolicy()
    nominations: Nominations | None = None


class PodState(StrEnum):
    """State of the pod on its way through the scheduler."""

    ASKS_NOTHING = "requests no GPU"
    FINISHED = "finished: it has no allocation"
    PLACED = "placed"
    PENDING = "bound to a node, GPU unknown"
    WAITING = "pending: it fits no node now"
    UNDECIDED = "pending: not enough could be read to decide whether it fits a node"
    FITS = "pending, although it fits a node"
    GATED = "pending: it has scheduling gates"
    GANG_WAITS = "pending: not all pods of its gang fit"
    GANG_INCOMPLETE = "pending: not all pods of its gang exist yet"

    @property
    def label(self) -> str:
        """The name in documents, e.g. ``GangWaits``."""
        return self.name.title().replace("_", "")


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of one pod.

    Attributes:
        request_summary: its request in words; empty for none.
        where: its GPUs in words; empty when it has none.
        why: why these GPUs; empty when it has none.
        neighbours: for each of its GPUs, what is on it.
        groups: refusing nodes by reason, most nodes first; for pods that wait.
        fits: nodes that admit it now, by all rules that are evaluated.
        helps: suggestions, the smallest step first.
        gates: names of its scheduling gates.
        pod_request: what it requests; ``None`` for nothing.
        refusals: why nodes refuse it, by name of the node.
    """

    pod: Pod
    state: PodState
    request_summary: str = ""
    where: str = ""
    why: str = ""
    neighbours: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    fits: tuple[NodeName, ...] = ()
    helps: tuple[str, ...] = ()
    scheduler_record: SchedulerRecord = SchedulerRecord()
    gates: tuple[str, ...] = ()
    policy: ClusterPolicy = ClusterPolicy()
    pod_request: PodRequest | None = None
    refusals: Mapping[NodeName, FitError] = {}
