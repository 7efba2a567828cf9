"""filter: which of these nodes can take this pod, and why not the others.

Names are answered with names and full nodes with full nodes, never more than was asked: sending
whole nodes back costs the scheduler more than all of the rest. A node that no eviction can help
stands in both failed maps: newer schedulers then spare themselves a preemption in vain, older ones
read the only map they know.
"""

from collections import Counter

from gpucore.fit import sift
from gpucore.model import Demand
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages, metrics
from gpuextender.messages import ExtenderArgs, FilterResult, MessageError, NodeItems
from gpuextender.refusals import Refusals, Said
from gpuextender.state import State


class Filter:
    """The verb. Answers always, for the original answers 200 whatever comes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._refusals = Refusals(state.ledger)

    def touch(self, node: NodeName) -> None:
        """The books of ``node`` changed."""
        self._refusals.touch(node)

    def answer(self, body: bytes) -> FilterResult:
        """Decide; what cannot be read is said in ``error``."""
        try:
            return self._decide(messages.decode(body, ExtenderArgs))
        except (MessageError, WireError) as error:
            return FilterResult(error=str(error))

    def _decide(self, args: ExtenderArgs) -> FilterResult:
        if not messages.given(args.pod):
            return FilterResult(error="arg or pod is nil")
        demand = self._state.saw(decode_pod(args.pod)).demand
        if args.node_names is not None:
            fits, said = self._sift(demand, args.node_names)
            return FilterResult(
                node_names=fits,
                failed_nodes=said.failed,
                failed_and_unresolvable_nodes=said.hopeless,
            )
        if not messages.given(args.nodes):
            return FilterResult(error="cannot get node names")
        items = messages.items_of(args.nodes)
        fits, said = self._sift(demand, list(items))
        return FilterResult(
            nodes=NodeItems([items[name] for name in fits]),
            node_names=fits,
            failed_nodes=said.failed,
            failed_and_unresolvable_nodes=said.hopeless,
        )

    def _sift(self, demand: Demand | None, names: list[NodeName]) -> tuple[list[NodeName], Said]:
        """Names that fit, and what the others say."""
        if demand is None:
            return names, Said({}, {}, Counter())
        fits, refused = sift(self._state.ledger, demand, names)
        said = self._refusals.of(demand, refused)
        for code, count in said.counts.items():
            metrics.REFUSALS.labels(code.value).inc(count)
        return fits, said
