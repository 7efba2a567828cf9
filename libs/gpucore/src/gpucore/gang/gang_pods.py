"""The pods of each gang that exist, kept current as the watch brings and removes pods."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from gpucore.gang.members import Member, Members, member_of, members_of
from gpucore.gang.pod_groups import PodGroups
from gpucore.gang.reservations import reserved_of, spare
from gpucore.model import Allocation
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import Names
from gpucore.wire.pod.gangs import Gang, gang_of
from gpucore.wire.pod.spec import Pod

_NOBODY: Final[dict[PodUid, Member]] = {}


class GangPods:
    """Members by gang. A pod that only the scheduler has shown counts for itself alone.

    Args:
        holds: whether the pod with this UID holds a place.

    Attributes:
        groups: the PodGroups of Kubernetes.
    """

    def __init__(self, names: Names, holds: Callable[[PodUid], bool]) -> None:
        self.groups = PodGroups()
        self._names = names
        self._holds = holds
        self._watched: dict[tuple[str, str], dict[PodUid, Member]] = {}
        self._gangs: dict[PodUid, tuple[str, str]] = {}

    def note(self, pod: Pod) -> bool:
        """The watch showed ``pod``; whether a gang has a new member."""
        member = member_of(pod, self._names)
        gang = gang_of(pod)
        key = (pod.namespace, gang.name) if gang and member else None
        known = self._gangs.get(pod.uid)
        if known is not None and known != key:
            self.drop(pod.uid)
        if member is None or key is None:
            return False
        self._gangs[pod.uid] = key
        self._watched.setdefault(key, {})[pod.uid] = member
        return known != key

    def drop(self, uid: PodUid) -> None:
        """The pod is gone, or of no gang any more."""
        key = self._gangs.pop(uid, None)
        if key is None:
            return
        members = self._watched[key]
        del members[uid]
        if not members:
            del self._watched[key]

    def clear(self) -> None:
        """Nothing is known."""
        self._watched.clear()
        self._gangs.clear()

    def members(self, pending: Member, gang: Gang) -> Members:
        """The gang as a pod sees it that has no place."""
        found = self._members(gang)
        return members_of(pending, found.values(), filter(self._holds, found))

    def without_place(self, pending: Member, gang: Gang) -> list[Member]:
        """The pods of the gang that could take the place of ``pending`` and hold none."""
        return [one for one in self._pending(gang).values() if one.like(pending)]

    def group(self, pending: Member, gang: Gang) -> list[Member]:
        """All pods of the gang, ``pending`` first."""
        uid = pending.pod.uid
        return [pending, *(one for key, one in self._members(gang).items() if key != uid)]

    def gang_of(self, pod: Pod) -> Gang | None:
        """The gang of a pod, with the size of its PodGroup."""
        return self.groups.gang_of(pod)

    def evicted_with(self, uid: PodUid) -> dict[PodUid, NodeName]:
        """The pods that preemption evicts together with this one, by their nodes."""
        key = self._gangs.get(uid)
        if key is None or not self.groups.disrupted_whole(key):
            return {}
        members = self._watched.get(key, _NOBODY).items()
        return {uid: one.pod.node for uid, one in members if one.pod.node}

    def spare(
        self, gang: Gang, allocations: Collection[Allocation], seen: Collection[PodUid]
    ) -> list[PodUid]:
        """Reservations of a gang that no pod will use.

        Args:
            allocations: all that are of the gang.
            seen: UIDs of the gang's pods in requests of the scheduler.
        """
        pending = self._pending(gang)
        waiting = {*pending, *self._without_place(seen)}
        if not gang.is_group:
            requests = [one.pod_request for one in pending.values() if one.pod_request is not None]
            return spare(allocations, gang.size, waiting=len(waiting), requests=requests)
        return [
            one.uid for uid, one in reserved_of(gang, allocations).items() if uid not in waiting
        ]

    def waiting(self, gang: Gang, requested: Iterable[PodUid]) -> int:
        """Pods of the gang without a placement, with those known only from scheduler requests.

        Args:
            requested: UIDs of the gang's pods in requests of the scheduler.
        """
        return len({*self._pending(gang), *self._without_place(requested)})

    def _pending(self, gang: Gang) -> dict[PodUid, Member]:
        """Its pods without a placement, of those that the watch has shown."""
        found = self._members(gang)
        return {uid: found[uid] for uid in self._without_place(found) if found[uid].pending}

    def _without_place(self, uids: Iterable[PodUid]) -> Iterator[PodUid]:
        return (uid for uid in uids if not self._holds(uid))

    def _members(self, gang: Gang) -> dict[PodUid, Member]:
        return self._watched.get((gang.namespace, gang.name), _NOBODY)
