"""Members of a gang with reservations: only pods that exist, limited in number and time.

A tenant writes the labels that make a gang, so they prove nothing. A reservation is made only for
unscheduled pods that the API server has shown, never for more than :data:`MOST_RESERVED` in one
namespace. A namespace whose reservations end without a pod owes that time: once it owes
:data:`LIMIT_SECONDS` it reserves nothing until most of the debt is worked off, at one second for
each :data:`RECOVERY` seconds. The debt belongs to the namespace, so new pods do not renew it.

A plan takes long on a large cluster, and kube-scheduler waits for it. So a namespace owes that time
too: once it owes :data:`PLANNING_SECONDS`, no gang of it gets a new plan for a while. Places that
are reserved stay, and gangs that have places are planned for longer, so that none stays half-way.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from gpucore.model import Allocation, PodRequest
from gpucore.model.constraints import Resources
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import VOLUMES_UNSUPPORTED
from gpucore.wire.names import Names
from gpucore.wire.pod.gangs import Gang, gang_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

MOST_RESERVED: Final = 1023
"""Reserved places of one namespace: those of one gang of the largest size."""
LIMIT_SECONDS: Final = 120.0
"""Of reservations that end without a pod."""
PLANNING_SECONDS: Final = 5.0
"""Of plans, with and without success."""
STARTED_SECONDS: Final = 100.0
"""Gangs that have places get new plans while their namespace has to pause for less than this."""
RECOVERY: Final = 8
_SECOND: Final = 1_000_000_000


class PlacementKind(msgspec.Struct, frozen=True):
    """What pods of a group have in common that may go to the same nodes.

    Attributes:
        owner: UID of their controller.
        scheduler: name of their scheduler.
        selection: their node selector, required node affinity and tolerations.
        pinned: UID of a pod with volumes, which may exist in one zone or on one node only.
    """

    owner: str
    scheduler: str
    selection: Hashable = None
    pinned: str = ""


def kind_of(pod: Pod) -> PlacementKind:
    """The kind of a pod; its owner and scheduler alone where its constraints were not read."""
    known = pod.constraints
    if known is None:
        return PlacementKind(pod.owner, pod.scheduler_name)
    selection = (known.node_selector, known.affinity, known.tolerations)
    pinned = pod.uid if VOLUMES_UNSUPPORTED in known.unsupported else ""
    return PlacementKind(pod.owner, pod.scheduler_name, selection, pinned)


Like = tuple[PodRequest, Resources, PlacementKind]
"""A kind of pods: those that kube-scheduler offers the same nodes."""


class GroupMember(msgspec.Struct, frozen=True):
    """A pod of a group that has no node and requests something of ours.

    Attributes:
        nominated: the node for which it is nominated; empty for none.
        requests: of CPU, memory and other resources of its node, where they are known.
    """

    uid: PodUid
    pod_request: PodRequest
    kind: PlacementKind
    nominated: NodeName = NodeName("")
    requests: Resources = ()

    @property
    def like(self) -> Like:
        """Equal for pods that could take each other's place."""
        return self.pod_request, self.requests, self.kind

    @property
    def size(self) -> tuple[int, int, int]:
        """By which the largest request is placed first."""
        request = self.pod_request
        return request.gpus, request.mem, request.core


Nodes = Callable[[GroupMember], Collection[NodeName]]
"""The nodes that a pod may go to: one object for pods that may go to the same."""


class Members(msgspec.Struct, frozen=True):
    """The existing pods of a gang, from the view of the pod being scheduled.

    Attributes:
        exist: pods of the gang that have not ended, with the pod being scheduled.
        alike: unscheduled ones with the same request, owner and scheduler, with the pod being
            scheduled.
    """

    exist: int
    alike: int


class Member(msgspec.Struct, frozen=True, dict=True):
    """A pod of a gang. ``pod_request`` is ``None`` where it requests nothing of ours."""

    pod: Pod
    pod_request: PodRequest | None

    @property
    def pending(self) -> bool:
        """It has no node yet and requests something of ours."""
        return self.pod_request is not None and not self.pod.node

    @cached_property
    def group_member(self) -> GroupMember | None:
        """It as one of a PodGroup that is to be placed; ``None`` where it is not."""
        request, pod = self.pod_request, self.pod
        if request is None or request.fault or not self.pending:
            return None
        requests = pod.constraints.requests if pod.constraints else ()
        return GroupMember(pod.uid, request, kind_of(pod), pod.nominated, requests)

    def like(self, other: "Member") -> bool:
        """Both could take each other's place."""
        mine, theirs = self.pod, other.pod
        same = (mine.owner, mine.scheduler_name) == (theirs.owner, theirs.scheduler_name)
        return same and self.pod_request == other.pod_request


def member_of(pod: Pod, names: Names) -> Member | None:
    """``pod`` as a member of its gang; ``None`` where it has none, or has ended or is gated.

    Raises:
        WireError: an amount is no Kubernetes quantity (the API server accepts no such pod).
    """
    if pod.finished or pod.terminating or pod.gated or gang_of(pod) is None:
        return None
    return Member(pod, pod_request_of(pod, names))


def members_of(asking: Member, others: Iterable[Member], placed: Iterable[PodUid]) -> Members:
    """Count the pods of a gang.

    Args:
        others: existing pods of the gang; the pod being scheduled may be among them.
        placed: UIDs of pods that hold a place, a node on the API server or not.
    """
    rest = [one for one in others if one.pod.uid != asking.pod.uid]
    holding = frozenset(placed)
    alike = sum(
        1 for one in rest if one.pending and one.pod.uid not in holding and one.like(asking)
    )
    return Members(exist=len(rest) + 1, alike=alike + 1)


class PostponedCause(StrEnum):
    """Why nothing is reserved for a gang yet."""

    INCOMPLETE = "incomplete"
    TOO_MANY = "too many"
    RESTING = "resting"
    PLANNED_LONG = "planned long"


class Postponed(msgspec.Struct, frozen=True):
    """Why nothing is reserved for a gang yet, whatever capacity is free.

    Attributes:
        exist: pods of an INCOMPLETE gang that exist.
        seconds: for which the namespace may reserve nothing (RESTING), or gets no new plan
            (PLANNED_LONG).
    """

    gang: Gang
    cause: PostponedCause
    exist: int = 0
    seconds: float = 0.0


def incomplete(gang: Gang, exist: int) -> Postponed:
    """Pods of the gang are missing."""
    return Postponed(gang, PostponedCause.INCOMPLETE, exist=exist)


def too_many(gang: Gang) -> Postponed:
    """The namespace has as many reserved places as it may have."""
    return Postponed(gang, PostponedCause.TOO_MANY)


def resting(gang: Gang, seconds: float) -> Postponed:
    """The namespace held GPUs in vain."""
    return Postponed(gang, PostponedCause.RESTING, seconds=seconds)


def planned_long(gang: Gang, seconds: float) -> Postponed:
    """Plans for gangs of the namespace took too long."""
    return Postponed(gang, PostponedCause.PLANNED_LONG, seconds=seconds)


def planning_pause(
    planning_time: "NamespaceTime", gang: Gang, held: Collection[Allocation], now_ns: int
) -> float:
    """Seconds for which a gang gets no new plan; 0 where it may have one.

    Args:
        held: what it has already, bound or reserved.
    """
    seconds = planning_time.pause(gang.namespace, now_ns)
    return 0.0 if held and seconds < STARTED_SECONDS else seconds


class _Debt(msgspec.Struct):
    """What a namespace owes. ``charged``: the time until then is counted."""

    owed_ns: int = 0
    at_ns: int = 0
    charged_ns: int = 0
    paused: bool = False


class NamespaceTime:
    """Time that each namespace took from others, and owes; times in nanoseconds.

    Args:
        limit: seconds after which a namespace must pause.
    """

    def __init__(self, limit: float = LIMIT_SECONDS) -> None:
        self._limit = int(limit * _SECOND)
        self._debts: dict[str, _Debt] = {}

    def charge(self, namespace: str, since: int, now: int) -> None:
        """The namespace took the time from ``since`` to ``now``; overlapping times count once."""
        debt = self._debts.setdefault(namespace, _Debt(at_ns=now))
        self._recover(debt, now)
        debt.owed_ns += max(now - max(since, debt.charged_ns), 0)
        debt.charged_ns = max(debt.charged_ns, now)
        debt.paused = debt.paused or debt.owed_ns >= self._limit

    def pause(self, namespace: str, now: int) -> float:
        """Seconds for which the namespace may take no more; 0 where it may."""
        debt = self._debts.get(namespace)
        if debt is None:
            return 0.0
        self._recover(debt, now)
        if not debt.owed_ns:
            del self._debts[namespace]
        left = (debt.owed_ns - self._limit // 2) * RECOVERY / _SECOND
        debt.paused = debt.paused and left > 0
        return left if debt.paused else 0.0

    def _recover(self, debt: _Debt, now: int) -> None:
        debt.owed_ns = max(debt.owed_ns - max(now - debt.at_ns, 0) // RECOVERY, 0)
        debt.at_ns = max(debt.at_ns, now)
