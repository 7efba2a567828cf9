"""The pods that defragmentation looks at: those that wait, and those that may be evicted.

A pod is evicted only where its controller creates another one that the plan can place. Whatever a
tenant writes into a pod decides about that pod alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.model.constraints import UNCONSTRAINED, PodConstraints
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.simulate.whatif import WhatIfPod
from gpucore.units import NodeName, PodUid, listed
from gpucore.wire.names import DEFRAG, DEFRAG_ALLOW, DEFRAG_NEVER, NOTEBOOK_NAME
from gpucore.wire.pod.controllers import Controller
from gpucore.wire.pod.gangs import gang_of, may_be_in_gang, restarts_others
from gpucore.wire.pod.spec import Pod

RECREATING: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Controllers that replace an evicted pod, and whose pods do not lose finished work by it."""
MOST_NAMES: Final = 3
"""Claims or pods that a sentence names."""
NODE_BOUND: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods return to the same node."""
AFTER_THE_END: Final = "StatefulSet"
"""The controller that creates a pod again once its predecessor is gone: both have one name."""
LEAVING_SECONDS: Final = 300
"""Longest time before and after its ``deletionTimestamp`` that a deleted pod counts as leaving.

Usual grace periods are shorter. A tenant may set one of a year, and a pod stays when its node
fails: without a limit no pod would be evicted for any that fits once such a pod is gone.
"""


class DefragPod(msgspec.Struct, frozen=True):
    """A pod that requests GPUs.

    Attributes:
        owner: UID of its controller; empty for none.
        controller: of a bound pod, as its object names it; ``None`` where a pod is moved at once.
        creation: RFC 3339 time.
        node: where it is bound; empty while it waits.
        resource_version: of the object that was read.
        obstacle: why it takes no part, as a sentence's end; empty where it does.
        nominated: its ``status.nominatedNodeName``; empty where it has none.
        unseen: no scheduler that calls the extender sees it, so what-if does not place it.
    """

    uid: PodUid
    namespace: str
    name: str
    pod_request: PodRequest
    constraints: PodConstraints = UNCONSTRAINED
    priority: int = 0
    creation: str = ""
    owner: str = ""
    node: NodeName = NodeName("")
    resource_version: str = ""
    obstacle: str = ""
    controller: Controller | None = None
    nominated: NodeName = NodeName("")
    unseen: bool = False

    @property
    def requirements(self) -> PodRequirements:
        """What it requires of a node."""
        return PodRequirements(self.pod_request, self.constraints)

    @property
    def whatif_pod(self) -> WhatIfPod:
        """It, or the pod that replaces it, in a what-if question."""
        return WhatIfPod(self.uid, self.pod_request, self.constraints)

    @property
    def queue_key(self) -> tuple[int, str, str, str]:
        """Its place in kube-scheduler's queue: by priority, then by age."""
        return -self.priority, self.creation, self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DefragState(msgspec.Struct, frozen=True):
    """What is known of the cluster at one moment.

    Attributes:
        waiting: pods without a node, in the order of the queue.
        running: bound pods by UID.
        pods_of: pods of each controller that are not being deleted, by its UID.
        leaving: nodes of deleted pods that end soon, by UID of the pod.
        policy: of the extender.
        with_claims: names of waiting pods that use ResourceClaims, for which nothing is moved.
    """

    nodes: Candidates
    waiting: tuple[DefragPod, ...] = ()
    running: Mapping[PodUid, DefragPod] = {}
    pods_of: Mapping[str, int] = {}
    leaving: Mapping[PodUid, NodeName] = {}
    policy: ClusterPolicy = ClusterPolicy()
    with_claims: tuple[str, ...] = ()

    @property
    def queue(self) -> tuple[DefragPod, ...]:
        """The waiting pods that a scheduler places, in its order."""
        return tuple(pod for pod in self.waiting if not pod.unseen)


def left_alone(nodes: Iterable[NodeInfo], waiting: Sequence[str] = ()) -> Iterator[str]:
    """Sentences about pods with ResourceClaims, which defragmentation does not move."""
    held = [each for node in nodes for each in node.allocations.values() if each.users is not None]
    if held:
        names = listed(sorted(f"{each.namespace}/{each.name}" for each in held), MOST_NAMES)
        yield f"ResourceClaims hold GPUs ({names}): pods with claims are not moved"
    if waiting:
        names = listed(waiting, MOST_NAMES)
        yield f"pods with ResourceClaims wait ({names}): nothing is moved for them"


def waiting_obstacle(pod: Pod, constraints: PodConstraints, unseen: str = "") -> str:
    """Why no pod is moved for a pod that waits; empty where pods may be.

    Args:
        unseen: why no scheduler that calls the extender sees it.
    """
    if unseen:
        return unseen
    if gang_of(pod) is not None:
        return "it belongs to a gang, for which nothing is moved"
    if constraints.unsupported:
        return f"what-if does not evaluate its {', '.join(constraints.unsupported)}"
    return ""


def is_leaving(deletion_end: float, now: float) -> bool:
    """Whether a deleted pod ends soon.

    Args:
        deletion_end: its ``deletionTimestamp`` in Unix seconds.
        now: Unix seconds.
    """
    return abs(deletion_end - now) <= LEAVING_SECONDS


def preemption(state: DefragState, pod: DefragPod, evicted: Collection[PodUid] = ()) -> str:
    """Where the scheduler of a waiting pod makes room for it, as a sentence; empty for nowhere.

    kube-scheduler preempts pods of the node that it nominates. A nomination can outlive them and
    the node, so it counts only while a pod leaves that node.

    Args:
        evicted: UIDs of pods that defragmentation evicted for the waiting pod.
    """
    victims = (uid for uid, node in state.leaving.items() if node == pod.nominated)
    if pod.nominated in state.nodes.nodes and any(uid not in evicted for uid in victims):
        return f"its scheduler makes room for it on node {pod.nominated} already"
    return ""


def running_obstacle(pod: Pod, controller: Controller | None, constraints: PodConstraints) -> str:
    """Why a bound pod stays where it is; empty where it may be evicted."""
    if pod.finished or pod.terminating or pod.phase != "Running":
        return "it is not running"
    if fixed := fixed_reason(pod, controller):
        return fixed
    if constraints.unsupported:
        return f"what-if does not evaluate its {', '.join(constraints.unsupported)}"
    if controller is None:
        return "no controller creates it again"
    kind = "Notebook" if pod.labels.get(NOTEBOOK_NAME) else controller.kind
    if kind not in RECREATING and pod.annotations.get(DEFRAG) != DEFRAG_ALLOW:
        return f"its {kind} may lose work; allow it with {DEFRAG}={DEFRAG_ALLOW}"
    return ""


def fixed_reason(pod: Pod, controller: Controller | None) -> str:
    """Why nobody can, or may, move a bound pod alone to another GPU; empty where somebody can."""
    if may_be_in_gang(pod):
        return "it belongs to a gang, which is never moved in part"
    if others := restarts_others(pod):
        return others
    if pod.annotations.get(DEFRAG) == DEFRAG_NEVER:
        return f"its annotation {DEFRAG} is {DEFRAG_NEVER}"
    if controller is not None and controller.kind in NODE_BOUND:
        return f"its {controller.kind} creates it again on the same node"
    return ""
