"""Pods that filter refused everywhere, with what is needed to see that one fits now.

Each pod is remembered with the nodes it was offered and with the change of the state up to which it
was judged. A node that changed later may have room for it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpucore.requeue import RefusedPod
from gpucore.units import PodUid
from gpucore.wire.pods import Pod

REMEMBERED: Final = 4096


class Entry(msgspec.Struct):
    """One refused pod.

    Attributes:
        offered: by number of the node, 1 where the scheduler offered it.
        judged: the change up to which it was judged, or sent back to its scheduler.
        wakeups: times it was sent back since it last fitted anywhere.
        not_before: time of the loop before which it is not sent back again.
        incomplete: pods of its gang were missing, which its scheduler reported as the reason.
    """

    pod: Pod
    refused: RefusedPod
    offered: bytearray
    judged: int
    wakeups: int = 0
    not_before: float = 0.0
    incomplete: bool = False

    def was_offered(self, number: int) -> bool:
        """The scheduler offered the node with this number."""
        return number < len(self.offered) and bool(self.offered[number])


class RefusedPods:
    """The refused pods and the changes of nodes, both bounded.

    Attributes:
        change: counts changes of nodes and of gangs.
        members_changed: the last change that brought a pod.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[PodUid, Entry] = OrderedDict()
        self._nodes: OrderedDict[int, int] = OrderedDict()
        self.change = 0
        self.members_changed = 0

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._entries)

    def remember(
        self, pod: Pod, refused: RefusedPod, numbers: Sequence[int], *, judged: int
    ) -> Entry:
        """No node of ``numbers`` can take the pod, as of the change ``judged``."""
        offered = bytearray(max(numbers, default=0) + 1)
        for number in numbers:
            offered[number] = 1
        known = self._entries.pop(refused.uid, None)
        entry = Entry(pod, refused, offered, judged)
        if known is not None:
            entry.wakeups, entry.not_before = known.wakeups, known.not_before
        self._entries[refused.uid] = entry
        if len(self._entries) > REMEMBERED:
            self._entries.popitem(last=False)
        return entry

    def forget(self, uid: PodUid) -> None:
        """The pod fits somewhere, or is gone."""
        self._entries.pop(uid, None)

    def node_changed(self, number: int) -> None:
        """The books of a node changed."""
        self.change += 1
        self._nodes[number] = self.change
        self._nodes.move_to_end(number)

    def member_came(self) -> None:
        """A pod came that may complete a gang."""
        self.change += 1
        self.members_changed = self.change

    def ranked(self) -> list[Entry]:
        """All pods, those to be tried first in front."""
        return sorted(self._entries.values(), key=lambda entry: entry.refused.rank)

    def changed_nodes(self) -> Iterator[tuple[int, int]]:
        """Nodes that changed since the oldest judgement, by number, with their last change."""
        oldest = min((entry.judged for entry in self._entries.values()), default=self.change)
        for number, change in reversed(list(self._nodes.items())):
            if change <= oldest:
                return
            yield number, change
