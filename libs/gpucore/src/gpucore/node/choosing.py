"""Choosing cards where the plan is missing or cannot be kept: best fit over what is really there.

A card fits when it has room for the pod's whole part, in every resource the pod asks for, so that
the pod is not torn apart at its second container. Room that is promised to other waiting pods is
left alone while any other card will do.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpucore.cards import MPS_CLIENTS
from gpucore.model import Cards, Rung
from gpucore.node.admission import AdmissionQueue
from gpucore.node.denial import Denial, DenialCode
from gpucore.node.devices import SHARES, DeviceTable, Resource
from gpucore.node.expected import Expected
from gpucore.node.holdings import NOBODY_KNOWN, Holder, Holdings
from gpucore.units import GpuIndex
from gpucore.wire.placements import split_evenly


class Room(NamedTuple):
    """What is known of the node's cards beside kubelet's question.

    Attributes:
        closed: cards that give nothing.
        single: cards that one pod at a time may use (MIG instances).
        rungs: what enforces shares on each card.
    """

    tables: Mapping[Resource, DeviceTable]
    holdings: Holdings
    queue: AdmissionQueue
    closed: frozenset[GpuIndex]
    single: frozenset[GpuIndex]
    rungs: Mapping[GpuIndex, Rung]

    def clash(
        self, resource: Resource, cards: Iterable[GpuIndex], pod: Expected | None
    ) -> Denial | None:
        """Whole and shared do not mix; nor is a share put where it is not enforced as demanded."""
        shared = resource in SHARES
        others = (Resource.GPU,) if shared else SHARES
        for card in cards:
            denial = self._unenforced(card, pod) or self._crowded(card, pod) if shared else None
            if denial is not None:
                return denial
            holders = self._holders(others, card)
            if card in self.single:
                mine = (pod.namespace, pod.name) if pod else NOBODY_KNOWN[:2]
                holders += [each for each in self._holders(SHARES, card) if each[:2] != mine]
            if holders:
                return _clash(card, shared=shared, who=holders[0])
        return None

    def _unenforced(self, card: GpuIndex, pod: Expected | None) -> Denial | None:
        demanded = pod.demand.rung if pod else Rung.NONE
        rung = self.rungs.get(card, Rung.NONE)
        if demanded in {Rung.NONE, rung}:
            return None
        sentence = f"card {card} has isolation {rung.value}, but the pod demands {demanded.value}"
        return Denial(DenialCode.RUNG_MISSING, sentence, (card,))

    def _crowded(self, card: GpuIndex, pod: Expected | None) -> Denial | None:
        """A daemon has so many clients at most, and every pod is at least one."""
        if self.rungs.get(card) is not Rung.MPS:
            return None
        pods = {holder[:2] for holder in self._holders(SHARES, card)}
        if pod is not None:
            pods.discard((pod.namespace, pod.name))
        if len(pods) < MPS_CLIENTS:
            return None
        sentence = f"card {card} has {len(pods)} pods, as many as one MPS daemon serves"
        return Denial(DenialCode.MAX_PODS, sentence, (card,))

    def _holders(self, resources: Iterable[Resource], card: GpuIndex) -> list[Holder]:
        found = {h for each in resources for h in self.holdings.holders(self.tables[each], card)}
        return sorted(found)

    def promised(self, resource: Resource, besides: Expected | None) -> Counter[GpuIndex]:
        """What waiting pods other than ``besides`` were promised on each card."""
        total: Counter[GpuIndex] = Counter()
        for pod in self.queue:
            if besides is None or pod.uid != besides.uid:
                for step in pod.steps:
                    total.update(step.plan.get(resource, {}))
        return total


def _clash(card: GpuIndex, *, shared: bool, who: Holder) -> Denial:
    holder = f"pod {who.namespace}/{who.pod}" if who.pod else "another pod"
    if shared:
        return Denial(DenialCode.TAKEN_WHOLE, f"card {card} is taken whole by {holder}", (card,))
    return Denial(DenialCode.SHARED_CARD, f"card {card} is shared by {holder}", (card,))


class Choosing(NamedTuple):
    """One choice: so much of a resource, from the ids kubelet calls available.

    Attributes:
        available: how many ids of each card kubelet could take.
    """

    room: Room
    table: DeviceTable
    amount: int
    available: Counter[GpuIndex]

    def exactly(self, plan: Cards, pod: Expected | None) -> Cards | Denial:
        """The plan, where every card of it has room and may be used."""
        clash = self.room.clash(self.table.resource, plan, pod)
        if clash is not None:
            return clash
        short = [card for card, amount in plan.items() if self.available[card] < amount]
        return self._no_room(plan, tuple(short)) if short else plan

    def on(self, cards: tuple[GpuIndex, ...], pod: Expected | None) -> Cards | Denial:
        """The amount spread evenly over ``cards``."""
        return self.exactly(split_evenly([self.amount], cards).get(0, {}), pod)

    def anywhere(self, pod: Expected | None) -> Cards | Denial:
        """Best fit: the cards with the least room that is enough, lowest index first."""
        count = pod.cards if pod else 1
        fitting = self._fitting(pod, leave_promised=True)
        if len(fitting) < count:
            fitting = self._fitting(pod, leave_promised=False)
        if len(fitting) < count:
            return self._unfit(pod) or self._no_room(self._need(pod), tuple(self.table.ids))
        kind = Resource.MEM if pod and pod.demand.mem else self.table.resource
        chosen = sorted(fitting, key=lambda card: (self._free(kind, card), card))[:count]
        return self.on(tuple(sorted(chosen)), pod)

    def whole(self, pod: Expected, plan: Cards, required: tuple[GpuIndex, ...]) -> Cards | Denial:
        """Whole cards: those of the plan that can be had, then the lowest free ones."""
        free = self._fitting(pod, leave_promised=False)
        wanted = [card for card in plan if card in free]
        unpromised = self.room.promised(Resource.GPU, pod)
        rest = sorted(free, key=lambda card: (unpromised[card] > 0, card))
        chosen = list(dict.fromkeys((*required, *wanted, *rest)))[: self.amount]
        if len(chosen) < self.amount:
            return self._no_room(dict.fromkeys(chosen, 1), tuple(self.table.ids))
        return dict.fromkeys(chosen, 1)

    def _unfit(self, pod: Expected | None) -> Denial | None:
        """A reason that says more than that there is no room."""
        clashes = (self.room.clash(self.table.resource, (card,), pod) for card in self.table.ids)
        reasons = {DenialCode.RUNG_MISSING, DenialCode.MAX_PODS}
        return next((each for each in clashes if each and each.code in reasons), None)

    def _need(self, pod: Expected | None) -> Cards:
        return {card: self._share(pod, self.table.resource) for card in self.table.ids}

    def _share(self, pod: Expected | None, resource: Resource) -> int:
        """What one card must hold of ``resource`` for the pod as a whole."""
        if resource is Resource.GPU:
            return 1
        if pod is None:
            return self.amount if resource is self.table.resource else 0
        total = pod.demand.mem if resource is Resource.MEM else pod.demand.core
        return -(-total // pod.cards)

    def _fitting(self, pod: Expected | None, *, leave_promised: bool) -> list[GpuIndex]:
        kinds = SHARES if self.table.resource in SHARES else (Resource.GPU,)
        promised = {
            each: self.room.promised(each, pod) if leave_promised else Counter() for each in kinds
        }
        return [
            card
            for card in self.table.ids
            if card not in self.room.closed
            and self.room.clash(self.table.resource, (card,), pod) is None
            and all(
                self._free(each, card) - promised[each][card] >= self._share(pod, each)
                for each in kinds
            )
        ]

    def _free(self, resource: Resource, card: GpuIndex) -> int:
        if resource is self.table.resource:
            return self.available[card]
        return self.room.holdings.free(self.room.tables[resource], card)

    def _no_room(self, need: Cards, cards: tuple[GpuIndex, ...]) -> Denial:
        figures = ", ".join(
            f"card {card} has {self.available[card]} of {len(self.table.ids[card])} free"
            for card in sorted(cards)
            if card in self.table.ids
        )
        asked = max(need.values(), default=self.amount)
        sentence = f"no card has {asked} of {self.table.resource} free: {figures}"
        return Denial(DenialCode.NO_CARD_FITS, sentence, tuple(sorted(cards)))
