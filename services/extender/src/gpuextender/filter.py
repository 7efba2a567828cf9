"""filter: which of these nodes can take this pod, and why not the others.

Names are answered with names and full nodes with full nodes, never more than was asked: sending
whole nodes back costs the scheduler more than all of the rest. A node that no eviction can help
stands in both failed maps: newer schedulers then spare themselves a preemption in vain, older ones
read the only map they know.
"""

from collections import Counter
from collections.abc import Sequence

from gpucore.model import Demand
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages, metrics
from gpuextender.gangs import Gangs
from gpuextender.latenews import LateNews
from gpuextender.messages import ExtenderArgs, FilterResult, MessageError, NodeItems
from gpuextender.refusals import FITS, Refusals
from gpuextender.roster import Roster
from gpuextender.said import Said
from gpuextender.state import Asking, State


class Filter:
    """The verb. Answers always, for the original answers 200 whatever comes."""

    def __init__(self, state: State, gangs: Gangs, roster: Roster) -> None:
        self._state = state
        self._gangs = gangs
        self._roster = roster
        self._refusals = Refusals(state.ledger, roster)
        self._late = LateNews()

    def touch(self, number: int) -> None:
        """The books of a node changed."""
        self._refusals.touch(number)
        self._late.change()

    async def answer(self, body: bytes) -> FilterResult:
        """Decide; what cannot be read is said in ``error``."""
        try:
            return await self._decide(messages.decode(body, ExtenderArgs))
        except (MessageError, WireError) as error:
            return FilterResult(error=str(error))

    async def _decide(self, args: ExtenderArgs) -> FilterResult:
        if not messages.given(args.pod):
            return FilterResult(error="arg or pod is nil")
        asking = self._state.saw(decode_pod(args.pod))
        if args.node_names is not None:
            fits, said = await self._sift(asking, args.node_names)
            return FilterResult(
                node_names=fits,
                failed_nodes=said.failed,
                failed_and_unresolvable_nodes=said.hopeless,
            )
        if not messages.given(args.nodes):
            return FilterResult(error="cannot get node names")
        items = messages.items_of(args.nodes)
        fits, said = await self._sift(asking, list(items))
        return FilterResult(
            nodes=NodeItems([items[name] for name in fits]),
            node_names=fits,
            failed_nodes=said.failed,
            failed_and_unresolvable_nodes=said.hopeless,
        )

    async def _sift(
        self, asking: Asking, names: Sequence[NodeName]
    ) -> tuple[Sequence[NodeName], Said]:
        """Names that fit, and what the others say."""
        if asking.demand is None:
            return names, Said()
        fits, said = await self._judged(asking, asking.demand, names)
        if not fits and len(said.hopeless) < len(names):
            deadline = self._late.deadline(asking.pod.uid)
            while not fits and await self._late.heard(deadline):
                fits, said = await self._judged(asking, asking.demand, names)
        for code, count in said.counts.items():
            metrics.REFUSALS.labels(code.value).inc(count)
        return fits, said

    async def _judged(
        self, asking: Asking, demand: Demand, names: Sequence[NodeName]
    ) -> tuple[Sequence[NodeName], Said]:
        return self._gangs.sift(asking, names) or await self._alone(demand, names)

    async def _alone(
        self, demand: Demand, names: Sequence[NodeName]
    ) -> tuple[Sequence[NodeName], Said]:
        if self._refusals.room_for(demand, names):
            return names, Said()
        numbers = self._roster.numbers(names)
        verdicts = await self._refusals.verdicts(demand, names, numbers)
        judged = list(zip(names, verdicts, strict=True))
        refused = [(name, verdict) for name, verdict in judged if verdict is not FITS]
        said = Said(
            {name: verdict.text for name, verdict in refused},
            {name: verdict.text for name, verdict in refused if verdict.unresolvable},
            Counter(verdict.code for _, verdict in refused if verdict.code),
        )
        return [name for name, verdict in judged if verdict is FITS], said
