"""Whether kube-scheduler takes pending pods in the order in which the watch brought them.

It does, by priority, while it runs: then few nominations ahead of it are enough, and each node has
few of them. Pods that are there when it starts it takes in any order: then all are nominated.
"""

from collections import deque
from collections.abc import Collection
from typing import Final

from gpucore.units import PodUid

CALLS: Final = 64
IN_ORDER: Final = 64
"""Nominations ahead of a scheduler that takes pods in order."""


class QueueOrder:
    """Remembers for which of the last pods a scheduler called in the order that was expected."""

    def __init__(self) -> None:
        self._expected: deque[bool] = deque(maxlen=CALLS)

    def scheduler_called(self, uid: PodUid, nominated: Collection[PodUid]) -> None:
        """The scheduler called about this pod; these are nominated."""
        if len(nominated):
            self._expected.append(uid in nominated)

    def window(self, limit: int) -> int:
        """How many pods may be nominated at a time, at most ``limit``."""
        unexpected = self._expected.count(False)
        return limit if unexpected > CALLS // 2 else min(IN_ORDER, limit)
