"""Sends a refused pod back to its scheduler once it fits on a node.

kube-scheduler and this process have separate watches. If the scheduler receives a pod's end first,
it calls filter at once, filter refuses on a state that is a moment older, and the pod then waits
for the next event, up to minutes. So this module stores every pod that was refused on all nodes,
and when a changed node fits the pod, it patches one annotation of the pod: kube-scheduler tries a
waiting pod again when the pod itself is updated (1.20: any change of its metadata; newer ones: an
extender that refused it is registered for every event of a pod).

The patch goes to ``pods/status``, which carries metadata and cannot change what the pod runs: a
scheduler has this right anyway, to write conditions.

A pod that evicted no other, because a node that was not offered had room, also goes back once that
room is taken: its scheduler then has to preempt.

A pod is sent back once for a change, never twice a second, and after longer waits each time; all
of them together at a bounded rate, those of highest priority first. Gangs are planned in turn, so
that one which never fits keeps no other waiting. One patch sends a PodGroup back, however many pods
it has: kube-scheduler queues all its pods together.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import time_ns
from typing import Final, Protocol

import msgspec
import structlog

from gpucore.gang.pod_groups import Key
from gpucore.gang.turns import GangTurns
from gpucore.model import PodRequest
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.requeue import RefusedPod, RefusedPods, RememberedPod, fitting
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import RETRY
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError
from gpukube.rate_limiter import RateLimiter
from gpukube.server.time_slices import TimeSlices

GRACE_SECONDS: Final = 0.15
"""A scheduler that received the change itself retries its pods within this time."""
AGAIN_SECONDS: Final = 1.0
"""The least time between two wake-ups of one pod; doubled with each."""
LONGEST_SECONDS: Final = 15.0
BURST: Final = 100
PER_SECOND: Final = 50
AT_ONCE: Final = 16

log = structlog.get_logger(__name__)


class GangChecks(Protocol):
    """Whether refused pods of a gang are worth another try."""

    def complete(self, pending: UnscheduledPod) -> bool:
        """All pods of its gang exist; a pod without a gang is complete."""
        ...

    def could_go(self, pending: UnscheduledPod, names: Sequence[NodeName]) -> bool:
        """Its gang could be placed now, the pod on one of ``names``; nothing is reserved."""
        ...

    def paused(self, pending: UnscheduledPod) -> bool:
        """Its gang gets no new places for a while, because of what its namespace owes."""
        ...


class Requeue:
    """Remembers refused pods; :meth:`run` sends them back."""

    def __init__(self, state: State, api: KubeClient, gangs: GangChecks) -> None:
        self._state, self._api, self._gangs = state, api, gangs
        self._pods, self._turns = RefusedPods(), GangTurns()
        self.on_refused: Callable[[UnscheduledPod], object] = lambda _: None
        self._changed = asyncio.Event()
        self._sending = asyncio.Semaphore(AT_ONCE)
        self._rate = RateLimiter(burst=BURST, quiet=PER_SECOND, busy=PER_SECOND)

    @property
    def change(self) -> int:
        """The generation of the state that evaluations use now."""
        return self._pods.change

    def refused(
        self,
        pending: UnscheduledPod,
        pod_request: PodRequest,
        nodes: Sequence[NodeName],
        *,
        judged: int,
        paused: bool = False,
    ) -> None:
        """No node of ``nodes`` could take the pod when it was judged.

        Args:
            judged: :attr:`change` before that.
            paused: its gang got no plan.
        """
        pod = pending.pod
        refused = RefusedPod(pod.uid, pod_request, pod.priority, pod.creation)
        entry = self._pods.remember(pod, refused, nodes, judged=judged)
        entry.incomplete, entry.paused = not self._gangs.complete(pending), paused
        self.on_refused(pending)
        if self._pods.change > judged or paused:
            self._changed.set()

    def is_refused(self, uid: PodUid) -> bool:
        """No node that the scheduler offered could take the pod."""
        return uid in self._pods

    def refused_pods(self) -> list[Pod]:
        """The pods that no offered node could take, those to be tried first in front."""
        return [entry.pod for entry in self._pods.ranked()]

    def accepted(self, pending: UnscheduledPod) -> None:
        """Some node can take the pod."""
        self._pods.forget(pending.pod.uid)

    def spared(self, uid: PodUid) -> None:
        """The pod evicts no other now, because a node that was not offered has room."""
        entry = self._pods.get(uid)
        if entry is not None:
            entry.spared = True

    def fits_nowhere(self, uid: PodUid) -> None:
        """No node has room for the pod: one that evicted no other for that goes back to do so."""
        entry = self._pods.get(uid)
        if entry is not None and entry.spared:
            entry.spared, entry.preempts = False, True
            self._changed.set()

    def node_changed(self, node: NodeName) -> None:
        """A node's ledger entry changed or was removed."""
        self._pods.node_changed(node, exists=self._state.ledger.node(node) is not None)
        if self._pods:
            self._changed.set()

    def pod_came(self) -> None:
        """A pod came that may complete a gang."""
        self._pods.member_came()
        if self._pods:
            self._changed.set()

    async def run(self) -> None:
        """Work for ever."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(GRACE_SECONDS)
            self._changed.clear()
            if await self.look():
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._changed.set)

    async def look(self) -> bool:
        """Send back the first pods that fit now; whether there is more to do later.

        The next look waits for their patches: those of one namespace must not delay it for long.
        """
        self._prune()
        now, ranked = asyncio.get_running_loop().time(), self._pods.ranked()
        self._turns.keep(gang.key for entry in ranked if (gang := gang_of(entry.pod)))
        ready = [entry for entry in ranked if entry.not_before <= now]
        batches = [[entry] for entry in await self._alone(ready)]
        crowd, more = await self._together(ready)
        is_group = any(one.pod.pod_group for one in crowd)
        batches += [crowd] if is_group else [[one] for one in crowd]
        batches.sort(key=lambda batch: batch[0].refused.rank)
        await asyncio.gather(*(self._in_turn(batch) for batch in batches[:BURST]))
        return more or bool(batches) or len(ready) < len(ranked)

    async def _alone(self, ranked: Sequence[RememberedPod]) -> list[RememberedPod]:
        """Pods of no gang that fit on a changed node, and those that are to evict others."""
        waiting = {one.refused.uid: one for one in ranked if gang_of(one.pod) is None}
        found = [waiting.pop(one.refused.uid) for one in list(waiting.values()) if one.preempts]
        slices, until = TimeSlices(), self._pods.change
        oldest = min((one.considered for one in waiting.values()), default=until)
        for node, change in self._pods.changed_nodes():
            if change <= oldest or not waiting:
                break
            node_info = self._state.ledger.node(node)
            if node_info is None:
                continue
            candidates = (
                one.refused
                for one in waiting.values()
                if one.considered < change and self._pods.was_offered(one, node)
            )
            found += [waiting.pop(uid) for uid in fitting(node_info, candidates)]
            await slices.yield_to_loop()
        if not found:  # else they may have been kept out by pods that go elsewhere
            for one in waiting.values():
                one.looked = until
        return sorted(found, key=lambda one: one.refused.rank)

    async def _together(self, ranked: Sequence[RememberedPod]) -> tuple[list[RememberedPod], bool]:
        """The pods of one gang if they can be placed now, and whether other gangs may fit too.

        Pods that were refused because some of the gang were missing go back too once all exist:
        their scheduler has to report the reason that holds now.

        Planning a gang takes long on a large cluster, so one is planned at a time, in turn.
        """
        changed, until = list(self._pods.changed_nodes()), self._pods.change
        hopeful, slices = list[RememberedPod](), TimeSlices()
        fits: dict[tuple[NodeName, PodRequest], bool] = {}
        for one in ranked:
            if gang_of(one.pod) is None:
                continue
            if one.paused or self._may_fit(one, changed, fits):
                hopeful.append(one)
            else:
                one.looked = until
            await slices.yield_to_loop()
        crowds = self._crowds(hopeful)
        turn = self._turns.take({key for key in crowds if not self._gangs.paused(crowds[key][0])})
        if turn is None:
            return [], bool(crowds)
        (pending, crowd), more = crowds[turn], len(crowds) > 1
        if self._worth_a_try(pending, crowd):
            return crowd, more
        for one in crowd:
            one.looked, one.paused = self._pods.change, False
        return [], more

    def _crowds(
        self, hopeful: Iterable[RememberedPod]
    ) -> dict[Key, tuple[UnscheduledPod, list[RememberedPod]]]:
        """Those that still wait, by their gangs, each with the first of them as it is now."""
        crowds: dict[Key, tuple[UnscheduledPod, list[RememberedPod]]] = {}
        for one in hopeful:
            gang, pending = gang_of(one.pod), self._waiting(one)
            if gang is not None and pending is not None:
                crowds.setdefault(gang.key, (pending, []))[1].append(one)
        return crowds

    def _worth_a_try(self, pending: UnscheduledPod, crowd: Sequence[RememberedPod]) -> bool:
        """Its gang can be placed, or some pods of it were refused without a plan."""
        if any(one.incomplete or one.paused for one in crowd) and self._gangs.complete(pending):
            return True
        return self._gangs.could_go(pending, self._pods.offered(crowd[0]))

    def _may_fit(
        self,
        entry: RememberedPod,
        changed: Sequence[tuple[NodeName, int]],
        fits: dict[tuple[NodeName, PodRequest], bool],
    ) -> bool:
        """Whether a gang's pod may fit: new members exist, or this pod fits on a changed node.

        Args:
            changed: nodes with their changes, newest first.
            fits: what was found for other pods, which most pods of a gang are like.
        """
        if self._pods.members_changed > entry.considered:
            return True
        for node, change in changed:
            if change <= entry.considered:
                return False
            if not self._pods.was_offered(entry, node):
                continue
            key = node, entry.refused.pod_request
            if key not in fits:
                node_info = self._state.ledger.node(node)
                fits[key] = node_info is not None and bool(fitting(node_info, [entry.refused]))
            if fits[key]:
                return True
        return False

    def _prune(self) -> None:
        for entry in list(self._gone()):
            self._pods.forget(entry.refused.uid)

    def _gone(self) -> Iterator[RememberedPod]:
        """Pods that are placed, or not there any more."""
        return (entry for entry in self._pods.ranked() if self._waiting(entry) is None)

    def _waiting(self, entry: RememberedPod) -> UnscheduledPod | None:
        """The pod as it waits now; ``None`` if it was bound or deleted, or has gates."""
        pod = entry.pod
        known = self._state.pending_pod(pod.namespace, pod.name, pod.uid)
        return None if known is None or known.pod.gated or self._holds(pod.uid) else known

    def _holds(self, uid: PodUid) -> bool:
        """The pod is bound or being bound; one that is nominated may still be refused."""
        ledger = self._state.ledger
        return ledger.allocation(uid) is not None and ledger.nomination(uid) is None

    async def _in_turn(self, batch: Sequence[RememberedPod]) -> None:
        """Several at a time: a busy API server takes tenths of a second for each."""
        await asyncio.sleep(self._rate.turn(asyncio.get_running_loop().time()))
        async with self._sending:
            await self._send_back(batch)

    async def _send_back(self, batch: Sequence[RememberedPod]) -> None:
        """Patch the first of pods that their scheduler tries together."""
        pod, judged = batch[0].pod, [one.judged for one in batch]
        preempts = [one.preempts for one in batch]
        for entry in batch:
            self._sent(entry)
        metadata = {"uid": pod.uid, "annotations": {RETRY: str(time_ns())}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            await self._api.patch(path, msgspec.json.encode({"metadata": metadata}))
            metrics.REQUEUES.labels("written").inc()
            for entry in batch:
                entry.paused = False
        except KubeError as error:
            for entry, before, due in zip(batch, judged, preempts, strict=True):
                entry.judged, entry.preempts = before, due
            if isinstance(error, NotFoundError):
                self._pods.forget(pod.uid)
                return
            metrics.REQUEUES.labels("failed").inc()
            log.info("pod not sent back", pod=f"{pod.namespace}/{pod.name}", error=str(error))

    def _sent(self, entry: RememberedPod) -> None:
        """Its scheduler tries it again; the next time comes after a longer wait."""
        entry.judged, entry.preempts = self._pods.change, False
        wait = min(AGAIN_SECONDS * 2.0 ** min(entry.wakeups, 30), LONGEST_SECONDS)
        entry.wakeups += 1
        entry.not_before = asyncio.get_running_loop().time() + wait
