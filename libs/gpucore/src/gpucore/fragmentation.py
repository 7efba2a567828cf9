"""Fragmentation of a node: free parts of cards that the usual work cannot use.

After the idea of fragmentation gradient descent (USENIX ATC 2023): for each kind of work that
usually comes, the free parts of cards it could not use are fragments; the expectation over kinds is
the node's fragmentation, in cards. Choosing where it grows least keeps room that somebody can use.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.model import CORE_PER_CARD, Placement

MILLI: Final = 1000
"""Parts that a card is measured in."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of work: so much of one card, or so many whole ones.

    Attributes:
        weight: how often it comes, in relation to the other kinds.
        milli: thousandths of a card; 1000 where ``cards`` is more than 1.
        cards: number of cards.
    """

    weight: float
    milli: int
    cards: int = 1


Workload = tuple[Kind, ...]
"""The kinds of work that usually come; a tuple, so that it is its own key."""

TYPICAL: Final[Workload] = (
    Kind(2.0, 125),
    Kind(4.0, 250),
    Kind(4.0, 500),
    Kind(1.0, 750),
    Kind(5.0, MILLI),
    Kind(1.0, MILLI, 2),
    Kind(0.5, MILLI, 4),
    Kind(0.5, MILLI, 8),
)
"""A guess for clusters that nobody has measured."""


def growth(account: NodeAccount, placement: Placement, workload: Workload) -> float:
    """Cards of fragmentation that ``placement`` would add to the node; negative takes away."""
    cards = [card for card in account.cards.values() if card.healthy]
    before = tuple(sorted(map(_free_milli, cards)))
    after = tuple(sorted(_left_milli(card, placement) for card in cards))
    return fragmentation(after, workload) - fragmentation(before, workload)


def _free_milli(card: CardAccount) -> int:
    """Thousandths of the card that are free, of memory or compute, whichever is scarcer."""
    core = card.core_free * MILLI // CORE_PER_CARD
    return min(card.free * MILLI // card.total, core) if card.total else (card.empty * MILLI)


def _left_milli(card: CardAccount, placement: Placement) -> int:
    if card.index in placement.group:
        return 0
    mem, core = placement.mem.get(card.index, 0), placement.core.get(card.index, 0)
    core_left = max(card.core_free - core, 0) * MILLI // CORE_PER_CARD
    if not card.total:
        return _free_milli(card)
    return min(max(card.free - mem, 0) * MILLI // card.total, core_left)


@lru_cache(maxsize=1 << 16)
def fragmentation(free: tuple[int, ...], workload: Workload) -> float:
    """Expected cards of free parts that ``workload`` cannot use.

    Args:
        free: thousandths free on each card, sorted.
        workload: what usually comes.
    """
    total = sum(kind.weight for kind in workload)
    lost = sum(kind.weight * _unusable(free, kind) for kind in workload)
    return lost / total / MILLI if total else 0.0


def _unusable(free: Sequence[int], kind: Kind) -> int:
    """Thousandths of ``free`` that this kind cannot use: all of it where the kind does not fit."""
    usable = [part for part in free if part >= kind.milli]
    return sum(free) - sum(usable) if len(usable) >= kind.cards else sum(free)


def workload_of(kinds: Iterable[tuple[int, int]]) -> Workload:
    """The workload of what came, as pairs of thousandths and number of cards; CPU work left out."""
    counts: dict[tuple[int, int], int] = {}
    for milli, cards in kinds:
        if cards:
            counts[milli, cards] = counts.get((milli, cards), 0) + 1
    return tuple(Kind(float(n), milli, cards) for (milli, cards), n in sorted(counts.items()))
