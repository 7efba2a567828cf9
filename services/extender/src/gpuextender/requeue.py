"""Sends a refused pod back to its scheduler once a node has room for it.

kube-scheduler and this process watch the API server each for itself. A scheduler that hears first
of a pod's end asks at once, is refused by a view that is a moment older, and then waits for the
next event, up to minutes. So every pod that was refused everywhere is remembered, and when a node
has changed and has room for it, one annotation of the pod is patched: kube-scheduler tries a
waiting pod again when the pod itself is updated (1.20: any change of its metadata; newer ones: an
extender that refused it is registered for every event of a pod).

The patch goes to ``pods/status``, which carries metadata and cannot change what the pod runs: a
scheduler has this right anyway, to write conditions.

A pod is sent back once for a change, never twice a second, and after longer waits each time; all
of them together at a bounded rate, those of highest priority first.
"""

import asyncio
from collections.abc import Iterator, Sequence
from time import time_ns
from typing import Final

import msgspec
import structlog

from gpucore.model import Demand
from gpucore.requeue import RefusedPod, fitting
from gpucore.units import NodeName
from gpucore.wire.gangs import gang_of
from gpucore.wire.names import RETRY
from gpuextender import metrics
from gpuextender.gangs import Gangs
from gpuextender.listings import Listing
from gpuextender.refused import Entry, RefusedPods
from gpuextender.roster import Roster
from gpuextender.slices import Slices
from gpuextender.state import Asking, State
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError
from gpukube.rate_limiter import RateLimiter

GRACE_SECONDS: Final = 0.15
"""A scheduler that heard of the change itself tries its pods within this time."""
AGAIN_SECONDS: Final = 1.0
"""The least time between two wake-ups of one pod; doubled with each."""
LONGEST_SECONDS: Final = 15.0
BURST: Final = 100
PER_SECOND: Final = 50
AT_ONCE: Final = 16

log = structlog.get_logger(__name__)


class Requeue:
    """Remembers refused pods; :meth:`run` sends them back."""

    def __init__(self, state: State, api: KubeClient, gangs: Gangs, roster: Roster) -> None:
        self._state, self._api, self._gangs, self._roster = state, api, gangs, roster
        self._pods = RefusedPods()
        self._changed = asyncio.Event()
        self._sending = asyncio.Semaphore(AT_ONCE)
        self._rate = RateLimiter(burst=BURST, quiet=PER_SECOND, busy=PER_SECOND)

    @property
    def change(self) -> int:
        """The change up to which whoever judges now judges."""
        return self._pods.change

    def refused(self, asking: Asking, demand: Demand, listing: Listing, *, judged: int) -> None:
        """No node of ``listing`` could take the pod when it was judged.

        Args:
            judged: :attr:`change` before that.
        """
        pod = asking.pod
        refused = RefusedPod(pod.uid, demand, pod.priority, pod.creation)
        entry = self._pods.remember(pod, refused, listing.numbers, judged=judged)
        entry.incomplete = not self._gangs.complete(asking)
        if self._pods.change > judged:
            self._changed.set()

    def accepted(self, asking: Asking) -> None:
        """Some node can take the pod."""
        self._pods.forget(asking.pod.uid)

    def node_changed(self, number: int) -> None:
        """The books of a node changed."""
        self._pods.node_changed(number)
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
        """Send back every pod that fits now; whether there is more to do later."""
        self._prune()
        now, ranked = asyncio.get_running_loop().time(), self._pods.ranked()
        ready = [entry for entry in ranked if entry.not_before <= now]
        found = await self._alone(ready)
        crowd, more = self._together(ready)
        found += crowd
        await asyncio.gather(*(self._in_turn(entry) for entry in found))
        return more or bool(found) or len(ready) < len(ranked)

    async def _alone(self, ranked: Sequence[Entry]) -> list[Entry]:
        """Pods of no gang for which a node that changed has room."""
        waiting = {one.refused.uid: one for one in ranked if gang_of(one.pod) is None}
        found, slices = list[Entry](), Slices()
        for number, change in self._pods.changed_nodes():
            account = self._state.ledger.node(self._roster.names[number])
            if account is None or not waiting:
                continue
            candidates = (
                one.refused
                for one in waiting.values()
                if one.judged < change and one.was_offered(number)
            )
            found += [waiting.pop(uid) for uid in fitting(account, candidates)]
            await slices.breathe()
        return sorted(found, key=lambda one: one.refused.rank)

    def _together(self, ranked: Sequence[Entry]) -> tuple[list[Entry], bool]:
        """The pods of one gang if they can be placed now, and whether other gangs may fit too.

        Pods that were refused because some of the gang were missing go back too once all exist:
        their scheduler has to report the reason that holds now.

        Planning a gang takes long on a large cluster, so that one is planned at a time.
        """
        hopeful = [one for one in ranked if gang_of(one.pod) and self._may_fit(one)]
        if not hopeful:
            return [], False
        first = hopeful[0]
        gang = gang_of(first.pod)
        crowd = [one for one in hopeful if gang_of(one.pod) == gang]
        asking = self._state.asking(first.pod.namespace, first.pod.name, first.refused.uid)
        more = len(crowd) < len(hopeful)
        if asking is not None and self._worth_a_try(asking, first):
            return crowd, more
        for one in crowd:
            one.judged = self._pods.change
        return [], more

    def _worth_a_try(self, asking: Asking, entry: Entry) -> bool:
        """The gang can be placed, or is refused for another reason than before."""
        if entry.incomplete and self._gangs.complete(asking):
            return True
        return self._gangs.could_go(asking, self._names(entry))

    def _may_fit(self, entry: Entry) -> bool:
        """A gang's pod may fit: pods came, or a node that changed has room for this one."""
        if self._pods.members_changed > entry.judged:
            return True
        accounts = (
            self._state.ledger.node(self._roster.names[number])
            for number, change in self._pods.changed_nodes()
            if entry.judged < change and entry.was_offered(number)
        )
        return any(account and fitting(account, [entry.refused]) for account in accounts)

    def _names(self, entry: Entry) -> list[NodeName]:
        """Nodes that the pod was offered."""
        numbers = range(1, min(len(entry.offered), len(self._roster)))
        return [self._roster.names[number] for number in numbers if entry.offered[number]]

    def _prune(self) -> None:
        for entry in list(self._gone()):
            self._pods.forget(entry.refused.uid)

    def _gone(self) -> Iterator[Entry]:
        """Pods that are placed, or not there any more."""
        for entry in self._pods.ranked():
            pod = entry.pod
            known = self._state.asking(pod.namespace, pod.name, pod.uid)
            if known is None or known.pod.gated or self._state.ledger.claim(pod.uid) is not None:
                yield entry

    async def _in_turn(self, entry: Entry) -> None:
        """Several at a time: a busy API server takes tenths of a second for each."""
        await asyncio.sleep(self._rate.turn(asyncio.get_running_loop().time()))
        async with self._sending:
            await self._send_back(entry)

    async def _send_back(self, entry: Entry) -> None:
        pod, judged = entry.pod, entry.judged
        entry.judged = self._pods.change
        wait = min(AGAIN_SECONDS * 2.0 ** min(entry.wakeups, 30), LONGEST_SECONDS)
        entry.wakeups += 1
        entry.not_before = asyncio.get_running_loop().time() + wait
        metadata = {"uid": pod.uid, "annotations": {RETRY: str(time_ns())}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        try:
            await self._api.patch(path, msgspec.json.encode({"metadata": metadata}))
            metrics.REQUEUES.labels("written").inc()
        except NotFoundError:
            self._pods.forget(pod.uid)
        except KubeError as error:
            entry.judged = judged
            metrics.REQUEUES.labels("failed").inc()
            log.info("pod not sent back", pod=f"{pod.namespace}/{pod.name}", error=str(error))
