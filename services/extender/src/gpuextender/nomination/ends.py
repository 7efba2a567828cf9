"""How nominations end: they no longer fit, the scheduler does not use them, or something else came.

What ends is given back in the ledger at once. What this process wrote is then cleared on the API
server too, unless the pod is bound or the API server shows another nomination.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from gpucore.accounting.ledger import reaches
from gpucore.nomination import NominationPauses, nomination_stands
from gpucore.scheduling.candidates import PodRequirements
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpuextender.nomination.writes import NominationWrites, Written
from gpuextender.state import State

KEPT_SECONDS: Final = 15.0
"""A scheduler binds a pod that it refused and that is nominated within this time, or never."""
KEPT_BACKLOG_SECONDS: Final = 60.0
NANOSECONDS: Final = 1_000_000_000
UNSEEN_SECONDS: Final = 0.25
"""Time after which to look again whether the watch has brought what was written."""
LOST_SECONDS: Final = 120.0
"""What the watch has not brought by then was lost, as by a restore of the API server.

There are no rounds while the watch is silent for more than 90 s.
"""


class NominationEnds:
    """Withdraws nominations.

    Args:
        kept: seconds for which a nomination is kept that the scheduler does not use.
        clock: Unix nanoseconds.
        now: seconds of a steady clock.
    """

    def __init__(
        self,
        state: State,
        writes: NominationWrites,
        pauses: NominationPauses,
        *,
        kept: float,
        clock: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._state, self._writes, self._pauses = state, writes, pauses
        self._kept, self._clock, self._now = kept, clock, now
        self._touched: dict[NodeName, None] = {}
        self._unseen: dict[PodUid, float] = {}

    def node_changed(self, name: NodeName) -> None:
        """What the node can take may have changed."""
        self._touched[name] = None

    def nominated(self) -> Iterator[tuple[NodeName, Pod, PodRequirements]]:
        """The nominated pods with their nodes."""
        for uid in list(self._state.ledger.nominations()):
            allocation = self._state.ledger.nomination(uid)
            if allocation is None:
                continue
            pending = self._state.pending_pod(allocation.namespace, allocation.name, uid)
            if pending is None or pending.pod_request is None or pending.pod.constraints is None:
                continue
            kind = PodRequirements(pending.pod_request, pending.pod.constraints)
            yield allocation.placement.node, pending.pod, kind

    def adopt(self, pod: Pod, name: NodeName) -> None:
        """An extender wrote this nomination; it is cleared unless something is reserved for it."""
        self._writes.written[pod.uid] = Written(pod, name, pod.resource_version)
        self._state.ledger.nomination_written(pod.uid, pod.resource_version)

    def resign(self) -> None:
        """Another extender nominates from now on: nothing is reserved here, nothing is cleared."""
        for uid in list(self._state.ledger.nominations()):
            allocation = self._state.ledger.nomination(uid)
            self._state.forget(uid)
            known = self._state.find(allocation.namespace, allocation.name) if allocation else None
            if known is not None:
                self._state.pod_changed(known.pod)  # its nomination is another's from now on
        self._writes.written.clear()

    def withdraw(self, incomplete: Callable[[], Iterable[PodUid]]) -> float:
        """Give up nominations that no longer fit, and clear those that ended otherwise.

        Args:
            incomplete: nominated pods of gangs of which another pod has lost its place.

        Returns:
            Seconds until the next one expires.
        """
        touched, self._touched = self._touched, {}
        doubtful = {name for name in touched if self._doubtful(name)}
        if doubtful:
            for name, pod, kind in list(self.nominated()):
                if name in doubtful and not self._stands(name, pod, kind):
                    self._state.forget_nomination(pod.uid)
        left = self._expire()
        for uid in incomplete():
            self._state.forget_nomination(uid)
            metrics.NOMINATIONS.labels("gang failed").inc()
        for written in list(self._writes.written.values()):
            left = min(left, self._clear(written))
        self._unseen = {uid: at for uid, at in self._unseen.items() if uid in self._writes.written}
        self._pauses.prune(self._now())
        return left

    def _expire(self) -> float:
        """Give up nominations that the scheduler has not used; seconds until others expire."""
        ledger, now_ns, soonest = self._state.ledger, self._clock(), float("inf")
        for uid in list(ledger.nominations()):
            allocation = ledger.nomination(uid)
            if allocation is None:
                continue
            kept = max(self._kept, KEPT_BACKLOG_SECONDS) if allocation.gang else self._kept
            left = kept - (now_ns - allocation.assume_time) / NANOSECONDS
            if left <= 0:
                self._state.forget_nomination(uid)
                metrics.NOMINATIONS.labels("expired").inc()
            else:
                soonest = min(soonest, left)
        return soonest

    def _doubtful(self, name: NodeName) -> bool:
        """Some nomination to the node may not fit any more."""
        node_info, node = self._state.ledger.node(name), self._state.candidates.version(name)
        if node_info is None or node is None:
            return True
        if node_info.overfull or self._state.candidates.oversubscribed(name):
            return True
        ill = any(not gpu.healthy for gpu in node_info.devices.values())
        return ill or bool(node.taints) or not node.accepts_pods

    def _stands(self, name: NodeName, pod: Pod, kind: PodRequirements) -> bool:
        node_info, node = self._state.ledger.node(name), self._state.candidates.node(name)
        if node_info is None or node is None:
            return False
        return nomination_stands(node_info, node, kind, pod.uid)

    def _clear(self, written: Written) -> float:
        """Clear a nomination that this process wrote and that nothing is reserved for any more.

        Returns:
            Seconds until there is more to do for this pod.
        """
        uid, allocation = written.pod.uid, self._state.ledger.allocation(written.pod.uid)
        if allocation is not None and allocation.placement.node == written.node:
            if self._state.ledger.nomination(uid) is None:
                del self._writes.written[uid]  # bound, or being bound
                self._pauses.ended(uid)
            return float("inf")
        known = self._state.find(written.pod.namespace, written.pod.name)
        if known is None or known.pod.uid != uid:
            del self._writes.written[uid]
            self._pauses.ended(uid)
            return float("inf")
        if not reaches(known.pod.resource_version, written.version):
            return self._await_watch(uid)
        if known.pod.nominated != written.node:
            del self._writes.written[uid]
        elif written.clearing == "sent":
            return UNSEEN_SECONDS
        elif not written.clearing or self._pauses.left(uid, self._now()) <= 0:
            self._writes.written[uid] = msgspec.structs.replace(written, clearing="sent")
            self._writes.put(known.pod, NodeName(""))
            metrics.NOMINATIONS.labels("given up").inc()
        if not written.clearing:
            self._pauses.lost(uid, self._now())
        return self._pauses.left(uid, self._now())

    def _await_watch(self, uid: PodUid) -> float:
        """Wait for what was written, or take it for lost: then the pod may be nominated anew."""
        if self._now() - self._unseen.setdefault(uid, self._now()) < LOST_SECONDS:
            return UNSEEN_SECONDS
        del self._writes.written[uid]
        return 0.0
