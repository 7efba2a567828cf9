"""The PodGroups that exist, and the gangs of pods with their sizes."""

from collections.abc import Callable, Iterable

import msgspec

from gpucore.wire.pod.gangs import GROUP_PREFIX, Gang, gang_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.pod_groups import PodGroup

Key = tuple[str, str]
"""Namespace and name of a gang."""


class PodGroups:
    """PodGroups by namespace and name, kept current by a watch.

    A PodGroup that was not read has a size of 1: kube-scheduler enforces ``minCount`` itself and
    binds no pod below it, so such a group is refused member by member and not as a whole.

    Attributes:
        resized: called when the size of a group may be new.
    """

    def __init__(self) -> None:
        self._groups: dict[Key, PodGroup] = {}
        self.resized: Callable[[], object] = lambda: None

    def on_update(self, item: PodGroup, line: bytes = b"") -> None:  # noqa: ARG002 - of a watch
        """A PodGroup was added or changed."""
        key = _key_of(item)
        known = self._groups.get(key)
        self._groups[key] = item
        if known is None or known.min_count != item.min_count:
            self.resized()

    def on_delete(self, item: PodGroup) -> None:
        """A PodGroup was deleted."""
        self._groups.pop(_key_of(item), None)

    def on_replace(self, items: Iterable[PodGroup]) -> None:
        """These are all PodGroups."""
        self._groups = {_key_of(group): group for group in items}
        self.resized()

    def disrupted_whole(self, key: Key) -> bool:
        """Preemption evicts all pods of this gang or none."""
        group = self._groups.get(key)
        return group is not None and group.disrupted_whole

    def scheduled(self, key: Key) -> bool:
        """kube-scheduler has found nodes for as many pods of this gang as it needs."""
        group = self._groups.get(key)
        return group is not None and group.scheduled

    def root(self, key: Key) -> Key:
        """What kube-scheduler places in one cycle: the gang, or the composite that has it."""
        group = self._groups.get(key)
        return (key[0], f"composite/{group.parent}") if group and group.parent else key

    def gang_of(self, pod: Pod) -> Gang | None:
        """The gang of a pod, with the size of its PodGroup."""
        gang = gang_of(pod)
        group = self._groups.get(gang.key) if gang else None
        if gang is None or group is None:
            return gang
        return msgspec.structs.replace(gang, size=group.min_count)


def _key_of(group: PodGroup) -> Key:
    return group.namespace, GROUP_PREFIX + group.name
