"""Which ids kubelet should take, and whether the ids it took may be used.

The card a pod was given by the scheduler wins; where that card has no room (two schedulers, a pod
that bypassed them) another card with room for the whole pod does; where none has, the pod is
refused with a sentence. Containers of a pod follow the card its first one really got.

Nothing here waits or talks: the caller waits when :meth:`Steering.prefer` knows nobody who asks.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from gpucore.model import Cards, Inventory, Rung
from gpucore.node.admission import AdmissionQueue, Turn
from gpucore.node.choosing import Choosing, Room
from gpucore.node.denial import Denial, DenialCode, card_list
from gpucore.node.devices import SHARES, DeviceTable, Resource, device_table
from gpucore.node.holdings import NOBODY_KNOWN, Held, Holder, Holdings
from gpucore.units import GpuIndex


class Question(msgspec.Struct, frozen=True):
    """What kubelet asks before it takes ids.

    Attributes:
        available: ids it could take, ``required`` among them.
        required: ids it will take in any case (an init container of the pod had them).
        amount: how many ids it will take in all.
    """

    resource: Resource
    available: frozenset[str]
    required: tuple[str, ...]
    amount: int


class Granted(msgspec.Struct, frozen=True):
    """Ids that may be used.

    Attributes:
        turn: for whom they are thought to be; ``None`` when nobody known asked that.
        cards: how many are on each card; whole cards in the order of their group.
    """

    resource: Resource
    ids: tuple[str, ...]
    cards: Cards
    turn: Turn | None = None


class _Answered(NamedTuple):
    """What was advised last, so that the ids that follow are known to be for the same pod."""

    turn: Turn | None
    resource: Resource
    ids: frozenset[str]


class Steering:
    """The matching state of one node. Not safe for several threads."""

    def __init__(self, served: tuple[Resource, ...], *, one_daemon: bool = False) -> None:
        """Serve these resources; ``one_daemon``: one MPS daemon serves all cards of the node."""
        self._one_daemon = one_daemon
        self.queue = AdmissionQueue(served)
        self.holdings = Holdings()
        self.tables: dict[Resource, DeviceTable] = {}
        self.closed: frozenset[GpuIndex] = frozenset()
        self.single: frozenset[GpuIndex] = frozenset()
        self.rungs: dict[GpuIndex, Rung] = {}
        self.displaced: Counter[GpuIndex] = Counter()
        self.granted: set[str] = set()
        self._reserved: dict[tuple[Resource, str], Holder] = {}
        self._answered: _Answered | None = None
        self._stranger: Granted | None = None
        self.equip(Inventory(gpus=()))

    def equip(self, inventory: Inventory, *, oversell: int = 1) -> None:
        """The node has these cards from now on; unhealthy ones give nothing."""
        self.tables = {each: device_table(inventory, each, oversell=oversell) for each in Resource}
        self.single = frozenset(gpu.index for gpu in inventory.gpus if gpu.mig)
        self.closed = frozenset(gpu.index for gpu in inventory.gpus if not gpu.healthy)
        self.rungs = {gpu.index: gpu.rung for gpu in inventory.gpus}

    def believe(
        self, truth: Iterable[Held], *, asked_at: int, unlisted: Collection[Holder] = ()
    ) -> None:
        """Kubelet says who holds what, asked at a turn of the holdings.

        Of ``unlisted`` containers (init containers) it says nothing.
        """
        told = list(truth)
        self.holdings.replace(told, asked_at=asked_at, unlisted=unlisted)
        self.queue.believe(told, asked_at=asked_at)

    def reserve(self, forgotten: Iterable[Held]) -> None:
        """These pods hold devices that kubelet calls free: nobody else gets them."""
        self._reserved = {
            (resource, one): Holder(held.namespace, held.name, container)
            for held in forgotten
            for container, row in held.containers.items()
            for resource, ids in row.items()
            for one in ids
        }

    def release(self, namespace: str, pod: str) -> None:
        """A pod has ended: nothing is held by it or reserved for it."""
        self.holdings.release(namespace, pod)
        self._reserved = {
            key: holder for key, holder in self._reserved.items() if holder[:2] != (namespace, pod)
        }

    def prefer(self, question: Question) -> tuple[str, ...] | Denial | None:
        """Ids that kubelet should take; ``None`` when nobody who asks that is known (yet)."""
        turn = self.queue.turn(question.resource, question.amount)
        if turn is None:
            return None
        fixed = self._fixed(turn, question)
        cards = self._where(turn, question, fixed)
        return self._answer(turn, question, cards)

    def adopt(self, question: Question) -> tuple[str, ...] | Denial:
        """As :meth:`prefer`, for a pod of which nothing is known: best fit."""
        table = self.tables[question.resource]
        fixed = tuple(sorted(table.per_card(question.required))) or self._stranger_cards(question)
        cards = self._choosing(question).on(fixed, None) if fixed else None
        if cards is None or isinstance(cards, Denial):
            cards = self._choosing(question).anywhere(None)
        return self._answer(None, question, cards)

    def allocate(self, resource: Resource, ids: tuple[str, ...]) -> Granted | Denial:
        """Whether ``ids`` may be used, and for whom they are."""
        turn = self._turn(resource, ids)
        denial = self._denial(turn, resource, ids)
        if denial is not None:
            if turn is not None:
                self.queue.turn_away(turn.pod.uid)
            return denial
        cards = _in_order(self.tables[resource].per_card(ids), turn, resource)
        granted = Granted(resource, ids, cards, turn)
        self._note(granted)
        return granted

    def cards_held(self, namespace: str, pod: str) -> frozenset[GpuIndex]:
        """Cards of which a pod holds anything."""
        return frozenset(
            card
            for resource, table in self.tables.items()
            for card in table.per_card(self.holdings.held_by(resource, namespace, pod))
        )

    def _note(self, granted: Granted) -> None:
        turn = granted.turn
        holder = NOBODY_KNOWN
        if turn is not None:
            holder = Holder(turn.pod.namespace, turn.pod.name, turn.step.container)
        self.holdings.take(granted.resource, granted.ids, holder)
        self.granted.update(granted.ids)
        self._stranger = granted if turn is None else None
        if turn is not None:
            self.queue.give(turn, granted.resource, granted.ids, at=self.holdings.turn)

    def _room(self) -> Room:
        return Room(self.tables, self.holdings, self.queue, self.closed, self.single, self.rungs)

    def _choosing(self, question: Question) -> Choosing:
        table = self.tables[question.resource]
        available = table.per_card(self._free(question))
        if question.resource is Resource.MEM:  # what inherited pods really use of a card
            available -= self.displaced
        return Choosing(self._room(), table, question.amount, available)

    def _free(self, question: Question) -> frozenset[str]:
        """What kubelet calls available, less what is reserved."""
        if not self._reserved:
            return question.available
        kind = question.resource
        return frozenset(one for one in question.available if (kind, one) not in self._reserved)

    def _answer(
        self, turn: Turn | None, question: Question, cards: Cards | Denial
    ) -> tuple[str, ...] | Denial:
        if isinstance(cards, Denial):
            if turn is not None:
                self.queue.turn_away(turn.pod.uid)
            return cards
        table = self.tables[question.resource]
        ids = table.pick(cards, among=self._free(question), first=question.required)
        self._answered = _Answered(turn, question.resource, frozenset(ids))
        return ids

    def _fixed(self, turn: Turn, question: Question) -> tuple[GpuIndex, ...]:
        """Cards that are settled already: by kubelet, by this container, by this pod."""
        required = self.tables[question.resource].per_card(question.required)
        if required or question.resource not in SHARES:
            return tuple(sorted(required))
        return self._pod_cards(turn)

    def _pod_cards(self, turn: Turn) -> tuple[GpuIndex, ...]:
        cards = (self.queue.cards(turn, self.tables[each]) for each in SHARES)
        return next((each for each in cards if each), ())

    def _where(self, turn: Turn, question: Question, fixed: tuple[GpuIndex, ...]) -> Cards | Denial:
        choosing, pod = self._choosing(question), turn.pod
        plan = turn.step.plan.get(question.resource, {})
        if question.resource is Resource.GPU:
            return choosing.whole(pod, plan, fixed)
        if fixed:
            return (
                choosing.exactly(plan, pod) if set(plan) == set(fixed) else choosing.on(fixed, pod)
            )
        if plan:
            planned = choosing.exactly(plan, pod)
            if not isinstance(planned, Denial):
                return planned
        return choosing.anywhere(pod)

    def _stranger_cards(self, question: Question) -> tuple[GpuIndex, ...]:
        """Compute follows memory: kubelet takes both for a container, one right after the other."""
        last = self._stranger
        if last is None or last.resource == question.resource or question.resource not in SHARES:
            return ()
        return tuple(sorted(last.cards)) if last.resource in SHARES else ()

    def _turn(self, resource: Resource, ids: tuple[str, ...]) -> Turn | None:
        answered, self._answered = self._answered, None
        if answered and answered.resource is resource and answered.ids == frozenset(ids):
            turn = answered.turn
            if turn is None or turn.pod.uid in self.queue:
                return turn
        return self.queue.turn(resource, len(ids))

    def _denial(self, turn: Turn | None, resource: Resource, ids: tuple[str, ...]) -> Denial | None:
        table = self.tables[resource]
        unknown = [one for one in ids if one not in table.owner]
        if unknown:
            sentence = f"device {unknown[0]} is on no card of this node; it may have been removed"
            return Denial(DenialCode.UNKNOWN_DEVICE, sentence)
        cards = tuple(sorted(table.per_card(ids)))
        return (
            self._in_use(resource, ids)
            or self._closed(cards)
            or self._spans(turn, resource, cards)
            or self._behind_several(resource, cards)
            or self._splits(turn, resource, cards)
            or self._room().clash(resource, cards, turn.pod if turn else None)
        )

    def _in_use(self, resource: Resource, ids: tuple[str, ...]) -> Denial | None:
        for one in ids:
            holder = self._reserved.get((resource, one))
            if holder is not None:
                sentence = (
                    f"device {one} is in use by pod {holder.namespace}/{holder.pod}, although "
                    "kubelet has lost its record of that; end that pod to free it"
                )
                return Denial(DenialCode.DEVICE_IN_USE, sentence)
        return None

    def _closed(self, cards: tuple[GpuIndex, ...]) -> Denial | None:
        bad = tuple(card for card in cards if card in self.closed)
        if not bad:
            return None
        verb = "is" if len(bad) == 1 else "are"
        return Denial(DenialCode.UNHEALTHY, f"{card_list(bad)} {verb} unhealthy", bad)

    def _spans(
        self, turn: Turn | None, resource: Resource, cards: tuple[GpuIndex, ...]
    ) -> Denial | None:
        limit = turn.pod.cards if turn else 1
        if resource is Resource.GPU or len(cards) <= limit:
            return None
        asked = "one card" if limit == 1 else f"{limit} cards"
        sentence = (
            f"the devices left on this node are spread over {card_list(cards)}, "
            f"but the pod asks for a share of {asked}"
        )
        return Denial(DenialCode.SPANS_CARDS, sentence, cards)

    def _behind_several(self, resource: Resource, cards: tuple[GpuIndex, ...]) -> Denial | None:
        """A program speaks to one MPS daemon, so it would see one of these cards."""
        behind = tuple(card for card in cards if self.rungs.get(card) is Rung.MPS)
        if self._one_daemon or resource is Resource.GPU or len(cards) == 1 or not behind:
            return None
        verb = "has a daemon of its" if len(behind) == 1 else "have daemons of their"
        sentence = (
            f"{card_list(behind)} {verb} own for MPS, and a program speaks to one: "
            "a share of several cards needs cards without MPS"
        )
        return Denial(DenialCode.SPANS_CARDS, sentence, cards)

    def _splits(
        self, turn: Turn | None, resource: Resource, cards: tuple[GpuIndex, ...]
    ) -> Denial | None:
        settled = self._pod_cards(turn) if turn and resource in SHARES else ()
        if turn is None or not settled or set(settled) >= set(cards):
            return None
        sentence = (
            f"container {turn.step.container} would get {card_list(cards)}, "
            f"but its pod is on {card_list(settled)}"
        )
        return Denial(DenialCode.SPLITS_POD, sentence, cards)


def _in_order(cards: Cards, turn: Turn | None, resource: Resource) -> Cards:
    """Whole cards in the order they were planned in, which may be that of a ring; else by index."""
    plan = turn.step.plan.get(resource, {}) if turn and resource is Resource.GPU else {}
    order = {card: position for position, card in enumerate(plan)}
    return dict(sorted(cards.items(), key=lambda each: (order.get(each[0], len(order)), each[0])))
