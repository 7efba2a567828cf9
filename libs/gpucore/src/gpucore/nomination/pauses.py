"""When a pending pod may be nominated again: after a refusal, and after a nomination was lost.

kube-scheduler ends a failed attempt with a write of the pod's status that clears the nomination: a
nomination that is written before that is lost. And a pod whose nominations are lost again and again
must not keep memory from others.
"""

from typing import Final

from gpucore.units import PodUid

REFUSED_SECONDS: Final = 0.1
"""kube-scheduler has usually written the status of a refused pod after this time."""
FIRST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 30.0
FORGET_SECONDS: Final = 120.0
HOPELESS: Final = 3
"""Nominations that a pod may lose before it is taken for one that the scheduler cannot place."""


class NominationPauses:
    """Pauses by pod; times are in seconds of one clock."""

    def __init__(self) -> None:
        self._until: dict[PodUid, float] = {}
        self._lost: dict[PodUid, int] = {}

    def refused(self, uid: PodUid, now: float) -> None:
        """The scheduler's attempt to place the pod is about to fail."""
        self._until[uid] = max(self._until.get(uid, 0.0), now + REFUSED_SECONDS)

    def lost(self, uid: PodUid, now: float) -> None:
        """The pod lost its nomination and is still pending; each pause is twice the last."""
        count = self._lost.get(uid, 0)
        self._lost[uid] = count + 1
        self._until[uid] = now + min(FIRST_SECONDS * 2.0 ** min(count, 20), LONGEST_SECONDS)

    def hopeful(self, uid: PodUid) -> bool:
        """The pod has not lost several nominations lately."""
        return self._lost.get(uid, 0) < HOPELESS

    def ended(self, uid: PodUid) -> None:
        """The pod is bound or gone."""
        self._until.pop(uid, None)
        self._lost.pop(uid, None)

    def left(self, uid: PodUid, now: float) -> float:
        """Seconds until the pod may be nominated; zero or less when it may."""
        return self._until.get(uid, now) - now

    def prune(self, now: float) -> None:
        """Forget pods that were not nominated again for long."""
        for uid in [uid for uid, until in self._until.items() if now - until > FORGET_SECONDS]:
            self.ended(uid)
