"""Scores of plain shares for all amounts at once: what :func:`gpucore.policy.score` would answer.

prioritize has a microsecond a node, and asking the core takes forty. A plain share (memory of one
card and nothing else) under binpack or spread is rated by how full the node's cards are afterwards
(:mod:`gpucore.fullness`), which follows from a few figures of each card. So every state of a node
has a table of scores by amount; nodes in the same state share it. Tests hold the tables to the
core's own answers.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.fit import is_plain
from gpucore.fullness import part_in_use, rating
from gpucore.model import CORE_PER_CARD, Demand
from gpucore.policy import points

LARGEST_TABLE: Final = 512
"""Amounts a table may have; nodes in MiB have too many and are asked one by one."""
STATES: Final = 8192

Card = tuple[bool, int, int, int, float]
"""Open for a share, free units, total units, used units, part of compute in use."""


def plain(demand: Demand) -> bool:
    """It asks for memory of one card and nothing else."""
    return bool(demand.mem) and not demand.gpus and is_plain(demand)


def table(account: NodeAccount, policy: str) -> Sequence[int]:
    """Scores by amount, from 0 on; empty where this short cut does not hold.

    Args:
        account: books of a node.
        policy: name of the policy that holds there.
    """
    if policy not in {"binpack", "spread"} or account.shape.largest_card >= LARGEST_TABLE:
        return ()
    cards = tuple(_card(card) for card in account.cards.values() if card.gpu is not None)
    return _scores(cards, account.share_room, spread=policy == "spread")


def _card(card: CardAccount) -> Card:
    core = 1.0 if card.taken else card.core_used / CORE_PER_CARD
    return card.open, card.free, card.total, card.used, core


@lru_cache(STATES)
def _scores(cards: tuple[Card, ...], room: int, *, spread: bool) -> Sequence[int]:
    """Each card that policy comes to takes the amounts that no card before it had room for."""
    scores = [0] * (1 + max((card[2] for card in cards), default=0))
    open_cards = [card for card in cards if card[0]]
    open_cards.sort(key=lambda card: -card[1] if spread else card[1])
    full = sum(map(_part, cards))
    first = 1
    for card in open_cards:
        others = full - _part(card)
        for amount in range(first, min(card[1], room) + 1):
            scores[amount] = points(rating(others + _part(card, amount), len(cards), spread=spread))
        first = max(first, card[1] + 1)
    return tuple(scores)


def _part(card: Card, more: int = 0) -> float:
    """Part of a card that is in use with ``more`` units on it."""
    _, _, total, used, core = card
    return part_in_use(total, used + more, core)
