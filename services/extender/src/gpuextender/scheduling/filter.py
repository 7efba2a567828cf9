"""filter: which of these nodes can take this pod, and why not the others.

The reply has names for names and full nodes for full nodes, because decoding full nodes costs the
scheduler more than everything else. A node on which preemption does not help is in both failed
maps: newer schedulers then do not try it, older ones read the only map they have.
"""

import asyncio
from collections.abc import Container, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from gpucore.accounting.template_nodes import template_nodes, template_refusals
from gpucore.explain.sentences import sentence
from gpucore.kubescheduler.constraints import PodConstraints
from gpucore.kubescheduler.node_fit import least_avoided
from gpucore.model import Code, PodRequest
from gpucore.scheduling.best_nodes import best_nodes, node_rating
from gpucore.scheduling.filter import filter_nodes, is_plain
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.plain_shares import ANY_SHARE, is_plain_share, share_ratings, share_refusal
from gpucore.topology.grouping import Grouping
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import all_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pods import decode_pod
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

BIND_SECONDS: Final = 0.02
MISSED: Final = 3


class BestNodes:
    """The best of the nodes that fit: kube-scheduler chooses among them alone.

    A pod that states soft constraints of its own keeps all nodes, because kube-scheduler weighs
    those. Nodes with PreferNoSchedule taints that the pod does not tolerate are left out while
    others fit.

    Args:
        policy: name of the default policy, which pods and nodes may override.
        grouping: how several GPUs are chosen by their links.
        limit: maximum number of candidates; 0 keeps all nodes.
    """

    def __init__(
        self, state: State, cache: NodeCache, *, policy: str, grouping: Grouping, limit: int
    ) -> None:
        self._state = state
        self._cache = cache
        self._policy = policy
        self._grouping = grouping
        self._limit = limit

    async def warm(self) -> None:
        """Compute beforehand what is requested for pods without a policy."""
        if self._limit:
            await self._ratings(ANY_SHARE, list(self._state.ledger.nodes()))

    async def of(
        self, pending: UnscheduledPod, raw: msgspec.Raw, names: Sequence[NodeName]
    ) -> Sequence[NodeName]:
        """The candidates for a pod that is no member of a gang.

        Args:
            raw: the pod as the scheduler sent it.
            names: of the nodes that fit.
        """
        if not self._limit or len(names) <= self._limit or pending.pod_request is None:
            return names
        constraints = self._state.constraints_of(pending.pod) or all_constraints(raw)
        if constraints.preferences:
            return names
        names = self._not_avoided(constraints, names)
        return best_nodes(names, await self._ratings(pending.pod_request, names), self._limit)

    def _not_avoided(
        self, constraints: PodConstraints, names: Sequence[NodeName]
    ) -> Sequence[NodeName]:
        """The nodes with the fewest PreferNoSchedule taints that the pod does not tolerate."""
        known = self._state.candidates.avoided
        tainted = known.intersection(names) if known else known
        if not tainted:
            return names
        nodes = (self._state.candidates.version(name) for name in tainted)
        return least_avoided(names, filter(None, nodes), constraints)

    async def _ratings(self, request: PodRequest, names: Sequence[NodeName]) -> Sequence[Any]:
        if is_plain_share(request):
            rows = await self._cache.results(
                ("share ratings", request.policy),
                names,
                lambda node: share_ratings(node, request, self._policy),
                unknown=lambda _: None,
            )
            try:
                return list(map(itemgetter(request.mem), rows))  # type: ignore[arg-type]
            except (IndexError, TypeError):  # the node changed meanwhile, or there is no row
                pass
        return await self._cache.results(
            ("rating", request),
            names,
            lambda node: node_rating(node, request, self._policy, self._grouping),
            unknown=lambda _: (),
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
        pending = self._state.saw(decode_pod(args.pod))
        if messages.given(args.node_names):
            fits, statuses = await self._filter(
                pending, args.pod, messages.names_of(args.node_names)
            )
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
    ) -> tuple[Sequence[NodeName], FilterStatuses]:
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
        self, pending: UnscheduledPod, raw: msgspec.Raw, names: Sequence[NodeName]
    ) -> tuple[Sequence[NodeName], FilterStatuses]:
        """The best nodes that can take the pod, and the reasons of those that cannot."""
        if pending.pod_request is None:
            return names, FilterStatuses()
        nominated = self._nominated(pending, names)
        if nominated is not None:
            return nominated, FilterStatuses()
        await self._expected.wait(pending.pod.uid)
        judged = self._requeue.change
        found = self._gangs.filter(pending, names) if gang_of(pending.pod) else None
        fits, statuses = found or await self._alone(pending, pending.pod_request, names)
        if found is None:
            fits = await self._best.of(pending, raw, fits)
        if fits:
            self._requeue.accepted(pending)
            self._expected.expect(pending.pod.uid)
        elif not pending.pod_request.fault:
            self._requeue.refused(pending, pending.pod_request, names, judged=judged)
        for code, count in statuses.counts.items():
            metrics.REFUSALS.labels(code.value).inc(count)
        return fits, statuses

    def _nominated(
        self, pending: UnscheduledPod, names: Sequence[NodeName]
    ) -> Sequence[NodeName] | None:
        """The node that is reserved for a nominated pod, where the scheduler offers it.

        Where it does not, its own filters have rejected the node: the reservation ends.
        """
        reserved = self._state.ledger.nomination(pending.pod.uid)
        if reserved is None:
            return None
        if reserved.placement.node not in names:
            self._state.forget(pending.pod.uid)
            return None
        self._requeue.accepted(pending)
        return names if len(names) == 1 else [reserved.placement.node]

    async def _alone(
        self, pending: UnscheduledPod, pod_request: PodRequest, names: Sequence[NodeName]
    ) -> tuple[Sequence[NodeName], FilterStatuses]:
        """The same for a pod of no gang."""
        doubtful = self._doubtful(pod_request, names)
        failed = await self._failed(pod_request, doubtful)
        if self._state.nominations:
            failed |= self._reserved_for_nominated(pending, pod_request, names, failed)
        fits = [name for name in names if name not in failed] if failed else names
        return fits, FilterStatuses.of(failed)

    def _doubtful(self, pod_request: PodRequest, names: Sequence[NodeName]) -> Sequence[NodeName]:
        """Names of nodes whose aggregates do not show that they can take ``demand``."""
        if not is_plain(pod_request):
            return names
        fits, refused = filter_nodes(self._state.ledger, pod_request, names)
        return [] if len(fits) == len(names) else list(refused)

    async def _failed(
        self, pod_request: PodRequest, names: Sequence[NodeName]
    ) -> dict[NodeName, FailedNode]:
        """The nodes of ``names`` that cannot take ``demand``."""
        failed: dict[NodeName, FailedNode] = {}
        if is_plain_share(pod_request):
            refusals = await self._cache.results(
                "share refusal", names, share_refusal, unknown=lambda _: None
            )
            for name, refusal in zip(names, refusals, strict=True):
                if refusal and (text := refusal.sentence(pod_request.mem)):
                    failed[name] = FailedNode(text, Code.INSUFFICIENT_MEMORY)
        others = [name for name in names if name not in failed]
        errors = await self._cache.results(
            ("fit", pod_request),
            others,
            lambda node: FailedNode.on(node, pod_request),
            unknown=FailedNode.unknown,
        )
        return failed | {name: one for name, one in zip(others, errors, strict=True) if one}

    def _reserved_for_nominated(
        self,
        pending: UnscheduledPod,
        pod_request: PodRequest,
        names: Sequence[NodeName],
        failed: Container[NodeName],
    ) -> dict[NodeName, FailedNode]:
        """Reasons of nodes with free memory that is kept for pods which are nominated for them."""
        found: dict[NodeName, FailedNode] = {}
        nominations, ledger = self._state.nominations, self._state.ledger
        for name in nominations.nodes().intersection(names):
            if name in failed:
                continue
            kept = nominations.refusal(ledger.node(name), pending.pod, pod_request)
            if kept is not None:
                refusal, why = kept
                found[name] = FailedNode(f"{sentence(refusal)}; {why}", refusal.code)
        return found
