"""filter: which of these nodes can take this pod, and why not the others.

The reply has names for names and full nodes for full nodes, because decoding full nodes costs the
scheduler more than everything else. A node on which preemption does not help is in both failed
maps: newer schedulers then do not try it, older ones read the only map they have.
"""

import asyncio
from collections.abc import Container, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final

import msgspec

from gpucore.explain.sentences import sentence
from gpucore.explain.shares import share_sentence
from gpucore.model import AllocationState, Code, PodRequest
from gpucore.nomination import left_to_scheduler
from gpucore.scheduling.best_nodes import best_nodes, node_rating
from gpucore.scheduling.fit import is_plain
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.nominated import reserved_for_nominated
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.plain_shares import ANY_SHARE, UNRATED, is_plain_share
from gpucore.scheduling.preemption import FitCheck, enough
from gpucore.scheduling.template_nodes import template_nodes, template_refusals
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import all_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import decode_pod
from gpuextender import metrics
from gpuextender.scheduling import messages
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.messages import (
    ExtenderArgs,
    FailedNode,
    FilterResult,
    FilterStatuses,
    MessageError,
    NodeItems,
)
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State

NodeNames = Sequence[NodeName]

QUIET_SECONDS: Final = 10.0
"""A scheduler that calls again after this time may have had another extender meanwhile."""
BIND_SECONDS: Final = 0.02
MISSED: Final = 3


class BestNodes:
    """The best of the nodes that fit: kube-scheduler chooses among them alone.

    A pod that states soft constraints of its own keeps all nodes, because kube-scheduler weighs
    those. Nodes with PreferNoSchedule taints that the pod does not tolerate are left out while
    others fit.

    Args:
        rules: how GPUs are chosen where neither pod nor node names a policy.
        limit: maximum number of candidates; 0 keeps all nodes.
    """

    def __init__(self, state: State, cache: NodeCache, *, rules: Rules, limit: int) -> None:
        self._state = state
        self._cache = cache
        self._rules = rules
        self._limit = limit

    async def warm(self) -> None:
        """Compute beforehand what is requested for pods without a policy."""
        if self._limit:
            await self.share_ratings(ANY_SHARE, list(self._state.ledger.nodes()))

    async def of(
        self, pending: UnscheduledPod, raw: msgspec.Raw, names: NodeNames, ratings: Sequence[float]
    ) -> NodeNames:
        """The candidates among the nodes that fit a pod, ``raw`` as its scheduler sent it.

        Args:
            ratings: of these nodes, as :meth:`share_ratings` gave them.
        """
        if not self._limit or len(names) <= self._limit or pending.pod_request is None:
            return names
        constraints = self._state.constraints_of(pending.pod) or all_constraints(raw)
        if constraints.preferences:
            return names
        left = self._state.candidates.least_avoided(names, constraints)
        if left is not names or min(ratings) == UNRATED:
            return best_nodes(left, await self._ratings(pending.pod_request, left), self._limit)
        return best_nodes(names, ratings, self._limit)

    async def share_ratings(self, request: PodRequest, names: NodeNames) -> Sequence[float]:
        """The ratings of a plain share by the policy that holds; of another request UNRATED."""
        if not is_plain_share(request):
            return [UNRATED] * len(names)
        return await self._cache.share_ratings(request, names, self._rules.policy)

    async def _ratings(self, request: PodRequest, names: NodeNames) -> Sequence[Any]:
        """Ratings of any request; there is a name at least."""
        ratings = await self.share_ratings(request, names)
        if min(ratings) > UNRATED:
            return ratings
        return await self._cache.results(
            ("rating", request),
            names,
            lambda node: node_rating(node, request, self._rules.policy, self._rules.grouping),
            unknown=(),
        )


class ExpectedBind:
    """The bind that follows a filter: kube-scheduler sends it while it filters the next pod.

    The next pod must be judged with the GPUs that the bind takes, or two pods in a row are sent to
    the place of one. So filter waits for that bind, not long: kube-scheduler may have dropped the
    pod. When several binds in a row do not come in time, nothing is awaited until one does.

    Args:
        seconds: from the reply of filter, after which its bind is no longer awaited.
    """

    def __init__(self, state: State, seconds: float = BIND_SECONDS) -> None:
        self._state = state
        self._seconds = seconds
        self._uid: PodUid | None = None
        self._until = 0.0
        self._missed = 0
        self._came = asyncio.Event()

    def expect(self, uid: PodUid) -> None:
        """This pod is going to be bound."""
        if self._state.ledger.allocation(uid) is None:
            self._uid, self._until = uid, asyncio.get_running_loop().time() + self._seconds
            self._came.clear()

    def node_changed(self) -> None:
        """An allocation may have come."""
        if self._uid is not None and self._state.ledger.allocation(self._uid) is not None:
            self._uid, self._missed = None, 0
            self._came.set()

    async def wait(self, uid: PodUid) -> None:
        """Return when the bind has come, or is no longer awaited.

        Args:
            uid: of the pod that is judged next; one that is judged again was not bound.
        """
        if self._uid in {None, uid} or self._missed >= MISSED:
            return
        try:
            async with asyncio.timeout_at(self._until):
                await self._came.wait()
        except TimeoutError:
            self._missed += 1


class Filter:
    """The filter call. It always has a reply, because the original replied 200 to everything."""

    def __init__(
        self, state: State, gangs: Gangs, cache: NodeCache, requeue: Requeue, best: BestNodes
    ) -> None:
        self._state = state
        self._best = best
        self._expected = ExpectedBind(state)
        self._gangs = gangs
        self._cache = cache
        self._requeue = requeue

    def node_changed(self) -> None:
        """Allocations on a node may have changed."""
        self._expected.node_changed()

    async def filter(self, body: bytes) -> FilterResult:
        """The reply; a request that cannot be decoded is described in ``error``."""
        try:
            return await self._decide(messages.decode(body, ExtenderArgs))
        except (MessageError, WireError) as error:
            return FilterResult(error=str(error))

    async def _decide(self, args: ExtenderArgs) -> FilterResult:
        if not messages.given(args.pod):
            return FilterResult(error="arg or pod is nil")
        if not self._state.called_within(QUIET_SECONDS):
            await self._gangs.resume()
        pending = self._state.saw(decode_pod(args.pod))
        if messages.given(args.node_names):
            names = messages.names_of(args.node_names)
            fits, statuses = await self._filter(pending, args.pod, names)
            nodes = None
        elif messages.given(args.nodes):
            items = messages.items_of(args.nodes)
            fits, statuses = await self._full(pending, args.pod, items)
            nodes = NodeItems([items[name] for name in fits])
        else:
            return FilterResult(error="cannot get node names")
        return FilterResult(
            nodes=nodes,
            node_names=msgspec.Raw(messages.encode(fits)),
            failed_nodes=statuses.failed,
            failed_and_unresolvable_nodes=statuses.unresolvable,
        )

    async def _full(
        self, pending: UnscheduledPod, raw: msgspec.Raw, items: Mapping[NodeName, msgspec.Raw]
    ) -> tuple[NodeNames, FilterStatuses]:
        """The same for full nodes; an unknown one is judged by its object, and not kept."""
        templates = template_nodes(self._state.ledger, items)
        names = [name for name in items if name not in templates]
        found = messages.NONE_FILTERED
        if names or not templates:
            found = await self._filter(pending, raw, names)
        failed = template_refusals(templates, pending.pod_request)
        fits = [*found[0], *(name for name in templates if name not in failed)]
        return fits, found[1].plus({name: FailedNode.of(one) for name, one in failed.items()})

    async def _filter(
        self, pending: UnscheduledPod, raw: msgspec.Raw, names: NodeNames
    ) -> tuple[NodeNames, FilterStatuses]:
        """The best nodes that can take the pod, and the reasons of those that cannot."""
        if pending.pod_request is None:
            return names, FilterStatuses()
        reserved = self._reserved(pending, names)
        if reserved is not None:
            return reserved, FilterStatuses()
        await self._expected.wait(pending.pod.uid)
        if pending.pod.pod_group:
            await self._gangs.settled(pending.pod)
        judged = self._requeue.change
        in_gang = gang_of(pending.pod) is not None
        paused = in_gang and self._gangs.paused(pending)
        found = self._gangs.filter(pending, names) if in_gang else None
        if found is None:
            fits, statuses = await self._alone(pending, raw, pending.pod_request, names)
        else:
            fits, statuses = found
        if fits:
            self._requeue.accepted(pending)
            if not pending.pod.pod_group:  # the binds of a group come after its last filter call
                self._expected.expect(pending.pod.uid)
        elif not pending.pod_request.fault:
            self._requeue.refused(pending, pending.pod_request, names, judged=judged, paused=paused)
        for code, count in statuses.counts.items():
            metrics.REFUSALS.labels(code.value).inc(count)
        return fits, statuses

    def _reserved(self, pending: UnscheduledPod, names: NodeNames) -> NodeNames | None:
        """The node that is reserved for the pod, where the scheduler offers it.

        It is nominated, or an earlier bind has an unknown outcome. Where the node of a nominated
        pod is not offered, the scheduler's own filters have rejected it: the reservation ends.
        """
        uid, ledger = pending.pod.uid, self._state.ledger
        reserved = ledger.nomination(uid)
        if reserved is None and gang_of(pending.pod) is None:
            reserved = ledger.allocation(uid)
        if reserved is None:
            return None
        if reserved.placement.node not in names:
            if reserved.state is AllocationState.NOMINATED:
                self._state.forget(uid)
            return None
        self._requeue.accepted(pending)
        return names if len(names) == 1 else [reserved.placement.node]

    async def _alone(
        self, pending: UnscheduledPod, raw: msgspec.Raw, pod_request: PodRequest, names: NodeNames
    ) -> tuple[NodeNames, FilterStatuses]:
        """The same for a pod of no gang."""
        ratings = await self._best.share_ratings(pod_request, names)
        failed = await self._failed(pod_request, await self._doubtful(pod_request, names, ratings))
        if self._state.nominations:
            failed |= self._reserved_for_nominated(pending, pod_request, names, failed)
        if len(failed) == len(names):
            given_up = self._give_way(pending, pod_request, names)
            if given_up is not None:
                del failed[given_up]
        if failed:
            fits = [name not in failed for name in names]
            names, ratings = list(compress(names, fits)), list(compress(ratings, fits))
        best = await self._best.of(pending, raw, names, ratings)
        return best, FilterStatuses.of(failed)

    def _give_way(
        self, pending: UnscheduledPod, pod_request: PodRequest, names: NodeNames
    ) -> NodeName | None:
        """A node of which nominated pods of lower priority give up their places for this pod.

        kube-scheduler does not count such pods either. A pod that may be nominated gets the place
        in the next round, which reserves it.
        """
        pod = pending.pod
        known = self._state.pending_pod(pod.namespace, pod.name, pod.uid) or pending
        if not (known.pod.nominated or left_to_scheduler(known.pod)):
            return None
        offered = frozenset(names)
        for name, lower in self._state.nominated_below(pending.pod.priority).items():
            node_info = self._state.ledger.node(name)
            if node_info is None or name not in offered:
                continue
            held = self._state.nominations.before(name, pending.pod)
            losers = enough(FitCheck(node_info, pod_request, held), lower)
            for one in losers or ():
                self._state.forget_nomination(one.uid)
            if losers:
                return name
        return None

    async def _doubtful(
        self, pod_request: PodRequest, names: NodeNames, ratings: Sequence[float]
    ) -> NodeNames:
        """The nodes of which no figure shows that they can take the pod."""
        if is_plain_share(pod_request):
            if min(ratings, default=0) >= 0:
                return []
            return list(compress(names, [rating < 0 for rating in ratings]))
        if not is_plain(pod_request):
            return names
        kind = "free_full_gpus" if pod_request.combines_gpus else "free_gpus"
        free = await self._cache.results(kind, names, attrgetter(kind), unknown=-1)
        return list(compress(names, [gpus < pod_request.gpus for gpus in free]))

    async def _failed(
        self, pod_request: PodRequest, names: NodeNames
    ) -> dict[NodeName, FailedNode]:
        """Those of the nodes that cannot take the pod."""
        failed: dict[NodeName, FailedNode] = {}
        if is_plain_share(pod_request):
            sentences = await self._cache.results(
                "share refusal", names, share_sentence, unknown=None
            )
            texts = [one.of(pod_request.mem) if one else "" for one in sentences]
            failed = {
                name: FailedNode(text, Code.INSUFFICIENT_MEMORY)
                for name, text in zip(names, texts, strict=True)
                if text
            }
            names = [name for name in names if name not in failed]
        errors: list[FailedNode | None] = await self._cache.results(
            ("fit", pod_request),
            names,
            lambda node: FailedNode.on(node, pod_request),
            unknown=FailedNode.unknown(NodeName("")),
        )
        return failed | {name: one for name, one in zip(names, errors, strict=True) if one}

    def _reserved_for_nominated(
        self,
        pending: UnscheduledPod,
        pod_request: PodRequest,
        names: NodeNames,
        failed: Container[NodeName],
    ) -> dict[NodeName, FailedNode]:
        """Reasons of nodes with free memory that is kept for pods which are nominated for them."""
        found: dict[NodeName, FailedNode] = {}
        nominations, ledger = self._state.nominations, self._state.ledger
        for name in nominations.nodes().intersection(names):
            if name in failed:
                continue
            node_info = ledger.node(name)
            kept = reserved_for_nominated(nominations, node_info, pending.pod, pod_request)
            if kept is not None:
                found[name] = FailedNode(sentence(kept), kept.code)
        return found
