"""The PodGroups that exist, and the gangs of pods with their sizes."""

from collections.abc import Iterable

import msgspec

from gpucore.wire.pod.gangs import GROUP_PREFIX, Gang, gang_of
from gpucore.wire.pod.pod_groups import PodGroup
from gpucore.wire.pods import Pod


class PodGroups:
    """PodGroups by namespace and name, kept current by a watch.

    A PodGroup that was not read has a size of 1: kube-scheduler enforces ``minCount`` itself and
    binds no pod below it, so such a group is refused member by member and not as a whole.
    """

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}
        self._whole: set[tuple[str, str]] = set()

    def note(self, group: PodGroup) -> bool:
        """A PodGroup was added or changed; whether its size is new."""
        key = (group.namespace, GROUP_PREFIX + group.name)
        known = self._sizes.get(key)
        self._sizes[key] = group.min_count
        if group.disrupted_whole:
            self._whole.add(key)
        else:
            self._whole.discard(key)
        return known != group.min_count

    def drop(self, group: PodGroup) -> None:
        """A PodGroup was deleted."""
        key = (group.namespace, GROUP_PREFIX + group.name)
        self._sizes.pop(key, None)
        self._whole.discard(key)

    def relist(self, groups: Iterable[PodGroup]) -> None:
        """These are all PodGroups."""
        self._sizes.clear()
        self._whole.clear()
        for group in groups:
            self.note(group)

    def disrupted_whole(self, key: tuple[str, str]) -> bool:
        """Preemption evicts all pods of this gang or none."""
        return key in self._whole

    def gang_of(self, pod: Pod) -> Gang | None:
        """The gang of a pod, with the size of its PodGroup."""
        gang = gang_of(pod)
        size = self._sizes.get(gang.key) if gang else None
        if gang is None or size is None:
            return gang
        return msgspec.structs.replace(gang, size=size)
