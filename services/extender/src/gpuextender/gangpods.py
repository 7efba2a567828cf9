"""The pods of each gang that exist, as the watch and the scheduler have shown them."""

from collections.abc import Callable, Iterable
from typing import Final

from gpucore.gangmembers import Member, Members, member_of, members_of
from gpucore.units import PodUid
from gpucore.wire.gangs import Gang, gang_of
from gpucore.wire.names import Names
from gpucore.wire.pods import Pod

_NOBODY: Final[dict[PodUid, Member]] = {}


class GangPods:
    """Members by gang. A pod that only the scheduler has shown counts for itself alone.

    Args:
        holds: whether the pod with this UID holds a place.
    """

    def __init__(self, names: Names, holds: Callable[[PodUid], bool]) -> None:
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

    def members(self, asking: Member, gang: Gang) -> Members:
        """The gang as a pod sees it that has no place."""
        found = self._members(gang)
        return members_of(asking, found.values(), filter(self._holds, found))

    def waiting(self, gang: Gang, asked: Iterable[PodUid]) -> int:
        """Pods of the gang without a place, those included that only the scheduler has shown.

        Args:
            asked: UIDs of pods of the gang about which the scheduler asked.
        """
        pending = {uid for uid, one in self._members(gang).items() if one.pending}
        return sum(1 for uid in pending.union(asked) if not self._holds(uid))

    def _members(self, gang: Gang) -> dict[PodUid, Member]:
        return self._watched.get((gang.namespace, gang.name), _NOBODY)
