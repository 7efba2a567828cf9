"""Where the pods of a gang go: on which nodes, how many on each, and on which cards there.

Nodes where the gang is already come first, then the fewest, best linked others. The least number of
nodes is exact: so many of the roomiest that all pods fit. Each next node is the best one with which
that number can still be kept.
"""

from collections.abc import Collection, Sequence

import msgspec

from gpucore.account import NodeAccount
from gpucore.cardfit import refusal_of_card
from gpucore.cards import CardAccount
from gpucore.grouping import BY_LINKS, Grouping
from gpucore.model import Claim, ClaimState, Demand, Placement, Refusal
from gpucore.policy import place, score
from gpucore.units import GpuIndex, NodeName, PodUid


class Rules(msgspec.Struct, frozen=True):
    """How cards are chosen: a name as in :func:`gpucore.policy.place`, and for several cards."""

    policy: str = ""
    grouping: Grouping = BY_LINKS


class Offer:
    """A node and what it can do for equal pods that work together.

    Args:
        account: its books, which stay as they are.
        most: more pods than this never come.

    Attributes:
        room: how many pods it can take.
    """

    def __init__(self, account: NodeAccount, demand: Demand, rules: Rules, *, most: int) -> None:
        self.account = account
        self._demand = demand
        self._rules = rules
        self._known: dict[int, float] = {}
        if demand.gpus:
            self.room = min(account.whole_room // demand.gpus, most)
        elif _countable(account, demand):
            self.room = min(sum(_shares(card, demand) for card in account.cards.values()), most)
        else:
            self.room = len(self.load(most))

    @property
    def name(self) -> NodeName:
        """Of the node."""
        return self.account.name

    def goodness(self, count: int) -> float:
        """How good the node is for ``count`` pods, more is better: by the links of all cards."""
        if count not in self._known:
            self._known[count] = self._goodness(count)
        return self._known[count]

    def load(self, count: int) -> list[Placement]:
        """Places for ``count`` pods, or as many as fit: one group of cards, cut into theirs."""
        books, rules = self.account.copy(), self._rules
        union = self._union(count) if self._demand.gpus else ()

        def cut(_: NodeAccount, free: Sequence[GpuIndex], many: int) -> tuple[GpuIndex, ...]:
            mine = [card for card in free if card in union]
            return rules.grouping.whole(books, mine, many, self._demand)

        found: list[Placement] = []
        for number in range(count):
            placement = place(
                books,
                self._demand,
                rules.policy,
                grouping=rules.grouping,
                choose_group=cut if union else None,
            )
            if isinstance(placement, Refusal):
                break
            books.put(_claim(placement, self._demand, number))
            found.append(placement)
        return found

    def _goodness(self, count: int) -> float:
        grouping, demand = self._rules.grouping, self._demand
        if demand.gpus:
            return grouping.rate(self.account, demand, self._union(count), 0.0)
        return score(self.account, demand, self._rules.policy, grouping=grouping)

    def _union(self, count: int) -> tuple[GpuIndex, ...]:
        """Whole cards for ``count`` pods."""
        free = [index for index, card in self.account.cards.items() if card.open and card.empty]
        demand = self._demand
        return self._rules.grouping.whole(self.account, free, count * demand.gpus, demand)


def _countable(account: NodeAccount, demand: Demand) -> bool:
    """Equal shares of which each card can be filled by itself, so that they need not be tried."""
    alone = demand.cards > 1 or demand.whole_device
    return not (alone or account.reserved_units() or account.pending_core)


def _shares(card: CardAccount, demand: Demand) -> int:
    """How many of the shares fit one card."""
    if refusal_of_card(card, demand) is not None:
        return 0
    rooms = [card.free // demand.mem] if demand.mem else []
    rooms += [card.core_free // demand.core] if demand.core else []
    rooms += [card.max_pods - len(card.holders)] if card.max_pods else []
    return min(rooms)


def _claim(placement: Placement, demand: Demand, number: int) -> Claim:
    uid, alone = PodUid(f"gang/{number}"), demand.whole_device
    return Claim(uid, "", "", ClaimState.RESERVED, placement, exclusive=alone)


def spread_over(
    offers: Sequence[Offer], count: int, home: Collection[NodeName]
) -> list[tuple[Offer, int]]:
    """Nodes and how many pods each takes; empty where there is no room for all."""
    if sum(offer.room for offer in offers) < count:
        return []
    ordered = sorted(offers, key=lambda offer: (-offer.room, offer.name))
    homes = [offer for offer in ordered if offer.name in home]
    others = [offer for offer in ordered if offer.name not in home]
    chosen: list[tuple[Offer, int]] = []
    while count:
        best = homes.pop(0) if homes else _best(others, count)
        load = min(best.room, count)
        chosen.append((best, load))
        others = [offer for offer in others if offer is not best]
        count -= load
    return chosen


def _best(ordered: Sequence[Offer], count: int) -> Offer:
    """The best node that keeps the number of nodes least; the tightest of equals."""
    needed, held = 0, 0
    while held < count:
        held += ordered[needed].room
        needed += 1
    but_one = held - ordered[needed - 1].room

    def suffices(position: int, offer: Offer) -> bool:
        """With the roomiest others, one node less than the least number, all pods fit."""
        others = but_one if position >= needed - 1 else held - offer.room
        return offer.room + others >= count

    def rank(offer: Offer) -> tuple[float, int, NodeName]:
        return -offer.goodness(min(offer.room, count)), offer.account.whole_room, offer.name

    return min((offer for at, offer in enumerate(ordered) if suffices(at, offer)), key=rank)
