"""Nominates pending pods whose GPUs are requested by claims, so that the policy chooses the node.

kube-scheduler calls no extender for a pod without an extended resource, and it does not score the
GPUs of claims. It does evaluate ``status.nominatedNodeName`` first. A pod cannot be scheduled until
kube-controller-manager has made its claims from their templates; the extender reads the templates,
and usually writes the nomination in that time.

What the claims would hold is reserved in the ledger until they are allocated, for a limited time.
A nomination is a hint: where it comes late, or the node does not fit, kube-scheduler chooses.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import Any, Final

import structlog

from gpucore.accounting.claim_offers import Key, by_index
from gpucore.accounting.claims import ClaimAccounts
from gpucore.claims.node_fit import ClaimNode, ClaimRules, first_fit
from gpucore.claims.nomination import ClaimRequirements, rate_for_claims
from gpucore.claims.pending import PendingClaimPods
from gpucore.model import Allocation, AllocationState
from gpucore.nomination import NominationPauses
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.node_ranking import NodeRanking, Rating
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.claim_specs import ClaimTemplate, DeviceClass
from gpucore.wire.claim.resource_claims import ResourceClaim
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpuextender.clock import unix_ns
from gpuextender.nomination.writes import MANAGER, version_written_by_us
from gpuextender.scheduling.binding import pod_path
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.errors import KubeError
from gpukube.server.time_slices import TimeSlices
from gpukube.watch.collection import KnownObjects

KEPT_SECONDS: Final = 15.0
"""kube-scheduler allocates the claims of a nominated pod within this time, or never."""
AT_ONCE: Final = 8
"""Patches at a time."""
LOOK_SECONDS: Final = 1.0
NEVER: Final = float("inf")
PAUSE_TIMES: Final = 2.0

log = structlog.get_logger(__name__)


def _key(one: ClaimTemplate | ResourceClaim) -> Key:
    return one.namespace, one.name


class ClaimNominator:
    """Decides and writes; an event handler of pods.

    Args:
        accounts: slices by node.
        leads: whether this process nominates.
        limit: maximum number of nominated pods whose claims are not allocated.
        schedulers: names of the schedulers whose pods are nominated.
        clock: Unix nanoseconds.
        now: seconds of a steady clock.

    Attributes:
        templates, classes, claims: event handlers of these collections.
    """

    def __init__(
        self,
        state: State,
        accounts: ClaimAccounts,
        api: KubeClient,
        leads: Callable[[], Awaitable[bool]],
        *,
        rules: Rules,
        limit: int,
        schedulers: Sequence[str],
        clock: Callable[[], int] = unix_ns,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._state, self._accounts, self._api, self._leads = state, accounts, api, leads
        self._rules, self._limit = rules, limit
        self._clock, self._now = clock, now
        self.templates = KnownObjects[Key, ClaimTemplate](_key, self._wake)
        self.classes = KnownObjects[str, DeviceClass](lambda one: one.name, self._class_changed)
        self.claims = KnownObjects[Key, ResourceClaim](_key, self._claim_changed)
        self._pods = PendingClaimPods(
            self.templates.items,
            self.claims.items,
            self.classes.items,
            schedulers=frozenset(schedulers),
        )
        self._reserved: dict[PodUid, float] = {}
        self._written: dict[PodUid, NodeName] = {}
        self._seen: dict[PodUid, NodeName] = {}
        self._pauses = NominationPauses()
        self._ranking = NodeRanking[ClaimRequirements](self._rate)
        self._writes = asyncio.Semaphore(AT_ONCE)
        self._sending: set[asyncio.Task[None]] = set()
        self.woken = asyncio.Event()

    # What happens.

    def on_replace(self, items: Iterable[Pod]) -> None:
        listed = list(items)
        uids = {pod.uid for pod in listed}
        for pod in self._pods.in_order():
            if pod.uid not in uids:
                self._ended(pod.uid)
        for pod in listed:
            self.on_update(pod, b"")

    def on_update(self, item: Pod, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        if not self._pods.put(item):
            self._ended(item.uid)
        elif not item.nominated:
            self.woken.set()

    def on_delete(self, item: Pod) -> None:
        self._ended(item.uid)

    def node_changed(self, name: NodeName) -> None:
        """What the node can take may have changed."""
        self._ranking.node_changed(name)
        if len(self._pods) > len(self._reserved):
            self.woken.set()

    def _wake(self, _: object) -> None:
        self.woken.set()

    def _class_changed(self, _: object) -> None:
        self._ranking.clear()
        self.woken.set()

    def _claim_changed(self, claim: ResourceClaim | None) -> None:
        """The claim itself is in the ledger once it is allocated."""
        if claim is None or not claim.allocated:
            self.woken.set()
            return
        for uid, _ in claim.pods:
            self._release(uid)

    def _ended(self, uid: PodUid) -> None:
        """The pod is bound, gone, or nothing to nominate."""
        if self._pods.drop(uid):
            self._release(uid)
            self._written.pop(uid, None)
            self._seen.pop(uid, None)
            self._pauses.ended(uid)

    def _release(self, uid: PodUid) -> bool:
        """Give back what is reserved for a pod."""
        if self._reserved.pop(uid, None) is None:
            return False
        self._state.forget(uid)
        return True

    # Rounds.

    async def run(self) -> None:
        """Nominate for ever; call it once all collections are listed."""
        pause = NEVER
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if pause == NEVER else pause):
                    await self.woken.wait()
            self.woken.clear()
            begin = self._now()
            pause = await self.round()
            await asyncio.sleep(PAUSE_TIMES * (self._now() - begin))

    async def round(self) -> float:
        """Nominate the pods that are due; seconds until the next round, infinite for none."""
        if not self._pods:
            return NEVER
        if not await self._leads():
            self._resign()
            return LOOK_SECONDS
        self._disown()
        self._expire()
        await self._adopt()
        slices, nowhere = TimeSlices(), set[int]()
        for pod in self._pods.in_order():
            await slices.yield_to_loop()  # thousands of pods may fit nowhere
            kind = self._due(pod)
            if kind is None or id(kind) in nowhere or len(self._reserved) >= self._limit:
                continue
            for _ in self._ranking.refresh(kind, self._state.ledger.nodes):
                await slices.yield_to_loop()
            known = self._pods.get(pod.uid)
            if known is None or self._due(known) is not kind:
                continue
            name = self._ranking.best(kind)
            if name is None or not self._nominate(known, kind, name):
                nowhere.add(id(kind))
        self._pauses.prune(self._now())
        return LOOK_SECONDS

    async def settle(self) -> None:
        """Wait until all patches are sent."""
        while self._sending:
            await asyncio.gather(*self._sending)

    def _resign(self) -> None:
        """Another process nominates: what it wrote is its own to clear."""
        for uid in list(self._reserved):
            self._release(uid)
        self._written.clear()
        self._seen.clear()

    def _disown(self) -> None:
        """A claim that was allocated is not any more: the pod is looked at like a new one."""
        if self._sending:
            return  # it may be the patch that clears the nomination
        for uid in self._written.keys() - self._reserved.keys():
            pod = self._pods.get(uid)
            if pod is not None and pod.claims and self._pods.kind(pod) is not None:
                del self._written[uid]

    def _expire(self) -> None:
        """Give up nominations that the scheduler has not used."""
        for uid, since in list(self._reserved.items()):
            if self._now() - since >= KEPT_SECONDS:
                self._release(uid)
                self._pauses.lost(uid, self._now())
                metrics.NOMINATIONS.labels("expired").inc()
                pod = self._pods.get(uid)
                if pod is not None and uid in self._written:
                    self._put(pod, NodeName(""))

    async def _adopt(self) -> None:
        """Clear what an extender wrote before this process nominated; then these pods are due."""
        for pod in self._pods.in_order():
            seen = self._seen.get(pod.uid) == pod.nominated
            own = pod.uid in self._written or pod.uid in self._reserved
            if not pod.nominated or seen or own:
                continue
            try:
                ours = await version_written_by_us(self._api, pod)
            except KubeError as error:  # the next round asks again
                log.info("not adopted", pod=f"{pod.namespace}/{pod.name}", error=str(error))
                continue
            if self._pods.get(pod.uid) is not pod:
                continue  # it changed meanwhile, or is gone
            self._seen[pod.uid] = pod.nominated
            if ours:
                self._written[pod.uid] = pod.nominated
                self._put(pod, NodeName(""))

    def _due(self, pod: Pod) -> ClaimRequirements | None:
        """What the pod requires, where it may be nominated now."""
        uid = pod.uid
        if uid in self._reserved or uid in self._written or pod.nominated:
            return None
        if not self._pauses.hopeful(uid) or self._pauses.left(uid, self._now()) > 0:
            return None
        if self._reserved_by_another(pod):
            return None
        return self._pods.kind(pod)

    def _reserved_by_another(self, pod: Pod) -> bool:
        """A claim that the pod names is reserved for another pod: it is allocated once for both."""
        named = set(pod.named_claims)
        others = map(self._pods.get, self._reserved if named else ())
        return any(
            other.namespace == pod.namespace and not named.isdisjoint(other.named_claims)
            for other in others
            if other is not None
        )

    # One node.

    def _rate(self, name: NodeName, kind: ClaimRequirements) -> Rating | None:
        node, candidate = self._node(name), self._state.candidates.node(name)
        if node is None or candidate is None:
            return None
        return rate_for_claims(
            node,
            candidate,
            kind,
            self.classes.items,
            policy=self._rules.policy,
            grouping=self._rules.grouping,
        )

    def _node(self, name: NodeName) -> ClaimNode | None:
        """The node with the devices of the newest generation; ``None`` without a slice."""
        node_info, slices = self._state.ledger.node(name), self._accounts.slices(name)
        if node_info is None or not slices:
            return None
        newest = max(each.generation for each in slices)
        found = [each.devices for each in slices if each.generation == newest]
        return ClaimNode(node_info, by_index(tuple(chain.from_iterable(found))))

    def _nominate(self, pod: Pod, kind: ClaimRequirements, name: NodeName) -> bool:
        node = self._node(name)
        placement = first_fit(node, ClaimRules(kind.specs, self.classes.items)) if node else None
        if node is None or placement is None:
            return False
        allocation = Allocation(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            state=AllocationState.RESERVED,
            placement=placement,
            unit=node.node_info.unit,
            assume_time=self._clock(),
        )
        self._reserved[pod.uid] = self._now()
        self._state.reserve(allocation, pod)
        self._put(pod, name)
        return True

    # Writes.

    def _put(self, pod: Pod, name: NodeName) -> None:
        task = asyncio.get_running_loop().create_task(self._send(pod, name))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, pod: Pod, name: NodeName) -> None:
        """Write or clear, unless the pod is another or somebody else nominated it meanwhile."""
        async with self._writes:
            if name and pod.uid not in self._reserved:
                return
            path = f"{pod_path(pod.namespace, pod.name)}/status?fieldManager={MANAGER}"
            try:
                await self._api.json_patch(path, self._operations(pod, name))
            except KubeError as error:
                self._failed(pod, error)
                return
        if name and (pod.uid in self._reserved or self._pods.settled(pod.uid)):
            self._written[pod.uid] = name
        else:
            self._written.pop(pod.uid, None)  # one that ended meanwhile is read and cleared
        if name:
            self._seen.pop(pod.uid, None)  # what was read is not the nomination of now
        metrics.NOMINATIONS.labels("written" if name else "cleared").inc()

    def _operations(self, pod: Pod, name: NodeName) -> list[dict[str, Any]]:
        field = "/status/nominatedNodeName"
        change = (
            {"op": "add", "path": field, "value": name} if name else {"op": "remove", "path": field}
        )
        return [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": field, "value": self._written.get(pod.uid)},
            {**change, "path": field},
        ]

    def _failed(self, pod: Pod, error: KubeError) -> None:
        self._written.pop(pod.uid, None)
        self._seen.pop(pod.uid, None)  # the next round reads what is there
        if self._release(pod.uid):
            self._pauses.lost(pod.uid, self._now())
        metrics.NOMINATIONS.labels("failed").inc()
        log.info("not nominated", pod=f"{pod.namespace}/{pod.name}", error=str(error))
