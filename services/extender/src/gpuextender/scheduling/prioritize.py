"""prioritize: a score from 0 to 10 for each node, so that shares pack nodes and not only GPUs.

A node that is unknown, or that does not fit, scores 0, and the others keep their scores. An unknown
node whose full object has an inventory is scored by it. Scores of plain shares are kept for all
amounts at once, because pods request many amounts; others by request.
"""

from collections.abc import Mapping, Sequence

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.plain_shares import UNRATED, is_plain_share, share_scores
from gpucore.scheduling.policy import score
from gpucore.scheduling.template_nodes import NO_TEMPLATES, template_nodes
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pod.spec import decode_pod
from gpuextender.scheduling import messages
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.messages import ExtenderArgs, HostPriority, MessageError
from gpuextender.state import State


class Prioritize:
    """The prioritize call.

    Args:
        rules: how GPUs are chosen where neither pod nor node names a policy.
    """

    def __init__(self, state: State, gangs: Gangs, cache: NodeCache, *, rules: Rules) -> None:
        self._state = state
        self._gangs = gangs
        self._cache = cache
        self._rules = rules

    async def prioritize(self, body: bytes) -> bytes:
        """The encoded ``HostPriorityList``; empty where the request cannot be read."""
        try:
            args = messages.decode(body, ExtenderArgs)
            names = _names(args)
            pending = self._state.saw(decode_pod(args.pod)) if messages.given(args.pod) else None
            templates = self._templates(args)
        except (MessageError, WireError):
            return messages.encode([])
        scores = await self._scores(pending, names) if pending else [0] * len(names)
        if templates and pending and (request := pending.pod_request):
            own = {name: self._score(node, request) for name, node in templates.items()}
            scores = [own.get(name, score) for name, score in zip(names, scores, strict=True)]
        return messages.encode(list(map(HostPriority, names, scores)))

    def _templates(self, args: ExtenderArgs) -> Mapping[NodeName, NodeInfo]:
        """Full nodes that are unknown: they are scored empty, by their own objects."""
        if messages.given(args.node_names) or not messages.given(args.nodes):
            return NO_TEMPLATES
        return template_nodes(self._state.ledger, messages.items_of(args.nodes))

    async def _scores(self, pending: UnscheduledPod, names: Sequence[NodeName]) -> Sequence[int]:
        marks = self._gangs.scores(pending, names)
        if marks is not None:
            return [marks[name] for name in names]
        if pending.pod_request is None:
            return [0] * len(names)
        if is_plain_share(pending.pod_request):
            return await self._plain(pending.pod_request, names)
        return await self._exact(pending.pod_request, names)

    async def _plain(self, pod_request: PodRequest, names: Sequence[NodeName]) -> Sequence[int]:
        """Scores of a plain share, out of the ratings of all amounts."""
        ratings = await self._cache.share_ratings(pod_request, names, self._rules.policy)
        scores = share_scores(ratings)
        if UNRATED in ratings:
            unrated = [place for place, rating in enumerate(ratings) if rating == UNRATED]
            exact = await self._exact(pod_request, [names[place] for place in unrated])
            for place, one in zip(unrated, exact, strict=True):
                scores[place] = one
        return scores

    async def _exact(self, pod_request: PodRequest, names: Sequence[NodeName]) -> list[int]:
        """Scores as the core gives them, one node at a time."""
        return await self._cache.results(
            ("score", pod_request), names, lambda node: self._score(node, pod_request), unknown=0
        )

    def _score(self, node: NodeInfo, pod_request: PodRequest) -> int:
        return score(node, pod_request, self._rules.policy, grouping=self._rules.grouping)


def _names(args: ExtenderArgs) -> list[NodeName]:
    if messages.given(args.node_names):
        return messages.names_of(args.node_names)
    return list(messages.items_of(args.nodes)) if messages.given(args.nodes) else []
