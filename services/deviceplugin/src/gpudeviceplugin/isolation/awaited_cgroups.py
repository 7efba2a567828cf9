"""Waits for the cgroups of pods that use a claim which kubelet has prepared for another pod.

kubelet makes no call for such a pod, so nothing keeps its containers from starting before its limit
is in force. The plugin looks for the cgroup, which kubelet makes before the pod's sandbox, in short
pauses.
"""

import time
from collections.abc import Collection
from typing import Final

from gpucore.units import PodUid
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpudeviceplugin.signals import Signal

LOOK_SECONDS: Final = 0.05
AWAITED_SECONDS: Final = 30.0
"""Longest time of short pauses for a pod, from the watch event that delivers it."""


class AwaitedCgroups:
    """The pods whose cgroups kubelet has yet to make."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree
        self._since: dict[PodUid, float] = {}

    def expect(self, pods: Collection[PodUid]) -> None:
        """Replace the pods; those that were awaited already keep their time."""
        now = time.monotonic()
        self._since = {uid: self._since.get(uid, now) for uid in pods}

    async def wait(self, changed: Signal, seen: int, seconds: float) -> None:
        """Wait for a change beyond ``seen``, for one of the cgroups, or for so many seconds."""
        end = time.monotonic() + seconds
        while changed.count <= seen and (left := end - time.monotonic()) > 0:
            short = min(left, LOOK_SECONDS) if self._recent() else left
            await changed.beyond_or_after(seen, short)
            if any(self._tree.of_pod(uid) for uid in self._recent()):
                return

    def _recent(self) -> list[PodUid]:
        begin = time.monotonic() - AWAITED_SECONDS
        return [uid for uid, since in self._since.items() if since > begin]
