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
from gpuextender.gangs import Gangs
from gpuextender.messages import ExtenderArgs, FilterResult, MessageError, NodeItems
from gpuextender.refusals import Refusals, Said
from gpuextender.state import Asking, State


class Filter:
    """The verb. Answers always, for the original answers 200 whatever comes."""

    def __init__(self, state: State, gangs: Gangs) -> None:
        self._state = state
        self._gangs = gangs
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
        asking = self._state.saw(decode_pod(args.pod))
        if args.node_names is not None:
            fits, said = self._sift(asking, args.node_names)
            return FilterResult(
                node_names=fits,
                failed_nodes=said.failed,
                failed_and_unresolvable_nodes=said.hopeless,
            )
        if not messages.given(args.nodes):
            return FilterResult(error="cannot get node names")
        items = messages.items_of(args.nodes)
        fits, said = self._sift(asking, list(items))
        return FilterResult(
            nodes=NodeItems([items[name] for name in fits]),
            node_names=fits,
            failed_nodes=said.failed,
            failed_and_unresolvable_nodes=said.hopeless,
        )

    def _sift(self, asking: Asking, names: list[NodeName]) -> tuple[list[NodeName], Said]:
        """Names that fit, and what the others say."""
        if asking.demand is None:
            return names, Said({}, {}, Counter())
        fits, said = self._gangs.sift(asking, names) or self._alone(asking.demand, names)
        for code, count in said.counts.items():
            metrics.REFUSALS.labels(code.value).inc(count)
        return fits, said

    def _alone(self, demand: Demand, names: list[NodeName]) -> tuple[list[NodeName], Said]:
        fits, refused = sift(self._state.ledger, demand, names)
        return fits, self._refusals.of(demand, refused)
