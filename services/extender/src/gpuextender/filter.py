"""filter: which of these nodes can take this pod, and why not the others.

Names are answered with names and full nodes with full nodes, never more than was asked: sending
whole nodes back costs the scheduler more than all of the rest. A node that no eviction can help
stands in both failed maps: newer schedulers then spare themselves a preemption in vain, older ones
read the only map they know.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from gpucore.explain import sentence
from gpucore.model import Demand
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages, metrics
from gpuextender.gangs import Gangs
from gpuextender.listings import Listing, Listings
from gpuextender.messages import ExtenderArgs, FilterResult, MessageError, NodeItems
from gpuextender.refusals import FITS, Refusals, Verdict
from gpuextender.requeue import Requeue
from gpuextender.roster import Roster
from gpuextender.said import Said
from gpuextender.state import Asking, State


class Filter:
    """The verb. Answers always, for the original answers 200 whatever comes."""

    def __init__(
        self, state: State, gangs: Gangs, roster: Roster, listings: Listings, requeue: Requeue
    ) -> None:
        self._state = state
        self._gangs = gangs
        self._listings = listings
        self._refusals = Refusals(state.ledger, roster)
        self._requeue = requeue

    def touch(self, number: int) -> None:
        """The books of a node changed."""
        self._refusals.touch(number)

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
        if messages.given(args.node_names):
            fits, said = await self._sift(asking, self._listings.read(args.node_names))
            nodes = None
        elif messages.given(args.nodes):
            items = messages.items_of(args.nodes)
            fits, said = await self._sift(asking, self._listings.of(list(items)))
            nodes = NodeItems([items[name] for name in fits.names])
        else:
            return FilterResult(error="cannot get node names")
        return FilterResult(
            nodes=nodes,
            node_names=self._listings.sent(fits),
            failed_nodes=said.failed,
            failed_and_unresolvable_nodes=said.hopeless,
        )

    async def _sift(self, asking: Asking, listing: Listing) -> tuple[Listing, Said]:
        """Nodes that fit, and what the others say."""
        if asking.demand is None:
            return listing, Said()
        judged = self._requeue.change
        fits, said = await self._judged(asking, asking.demand, listing)
        if fits.names:
            self._requeue.accepted(asking)
        elif not asking.demand.fault:
            self._requeue.refused(asking, asking.demand, listing, judged=judged)
        for code, count in said.counts.items():
            metrics.REFUSALS.labels(code.value).inc(count)
        return fits, said

    async def _judged(
        self, asking: Asking, demand: Demand, listing: Listing
    ) -> tuple[Listing, Said]:
        sifted = self._gangs.sift(asking, listing.names)
        if sifted is None:
            return await self._alone(asking, demand, listing)
        names, said = sifted
        return self._listings.of(names), said

    async def _alone(
        self, asking: Asking, demand: Demand, listing: Listing
    ) -> tuple[Listing, Said]:
        names, numbers = listing.names, listing.numbers
        doubts = self._refusals.doubts(demand, numbers)
        verdicts = await self._refusals.verdicts(
            demand, [names[place] for place in doubts], [numbers[place] for place in doubts]
        )
        refused = {
            place: verdict
            for place, verdict in zip(doubts, verdicts, strict=True)
            if verdict is not FITS
        }
        if self._state.nominations:
            refused |= self._kept(asking, demand, names, refused)
        said = Said(
            {names[place]: verdict.text for place, verdict in refused.items()},
            {names[place]: one.text for place, one in refused.items() if one.unresolvable},
            Counter(verdict.code for verdict in refused.values() if verdict.code),
        )
        return listing.without(refused), said

    def _kept(
        self, asking: Asking, demand: Demand, names: Sequence[NodeName], refused: Collection[int]
    ) -> dict[int, Verdict]:
        """Verdicts of nodes whose room is kept for pods that are nominated for them."""
        found: dict[int, Verdict] = {}
        nominations, ledger = self._state.nominations, self._state.ledger
        nodes = nominations.nodes()
        for place, name in enumerate(names):
            if name not in nodes or place in refused:
                continue
            kept = nominations.refusal(ledger.node(name), asking.pod, demand)
            if kept is not None:
                refusal, why = kept
                found[place] = Verdict(f"{sentence(refusal)}; {why}", refusal.code)
        return found
