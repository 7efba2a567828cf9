"""What is known of a pod that is explained, and of its cluster."""

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.gang.members import Members
from gpucore.model import PodRequest
from gpucore.model.constraints import UNCONSTRAINED, PodConstraints
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.pending_pods import Nominations
from gpucore.wire.pod.gangs import Gang
from gpucore.wire.pod.scheduler_events import SchedulerRecord
from gpucore.wire.pod.spec import Pod


class PodFacts(msgspec.Struct, frozen=True):
    """What is known of the pod that is explained.

    Attributes:
        demand: what it requests of GPUs; ``None`` for nothing.
        constraints: what it requires of its node besides GPUs.
        scheduler_record: what schedulers have recorded about it.
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
        nominations: waiting pods for which capacity of nodes is reserved; ``None`` for none.
    """

    ledger: Ledger
    nodes: Candidates
    policy: ClusterPolicy = ClusterPolicy()
    nominations: Nominations | None = None
