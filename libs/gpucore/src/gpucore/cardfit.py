"""Does a demand's part fit one card, and if not why, with the figures of the card."""

from typing import Final

from gpucore.cards import CardAccount
from gpucore.model import CORE_PER_CARD, CardRefusal, Code, Demand, Rung

CURABLE: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.MAX_PODS,
        Code.SHARED_CARD,
        Code.TAKEN_WHOLE,
    }
)
"""Card codes that evicting pods could cure."""


def per_card(demand: Demand) -> tuple[int, int]:
    """Units and percent that a share asks of each of its cards."""
    return -(-demand.mem // demand.cards), -(-demand.core // demand.cards)


def refusal_of_card(card: CardAccount, demand: Demand) -> CardRefusal | None:
    """Why one card cannot take its part of a share; ``None`` when it can."""
    mem, core = per_card(demand)
    code = _unable(card, demand, mem, core) or _occupied(card, demand) or _short(card, mem, core)
    if code is None:
        return None
    if code is Code.MAX_PODS:
        return CardRefusal(card.index, code, 0, card.max_pods, 1)
    if code in {Code.COMPUTE_TOO_LARGE, Code.INSUFFICIENT_CORE}:
        return CardRefusal(card.index, code, card.core_free, CORE_PER_CARD, core)
    return CardRefusal(card.index, code, card.free, card.total, mem)


def _unable(card: CardAccount, demand: Demand, mem: int, core: int) -> Code | None:
    """What holds even with nobody on the card."""
    if not card.healthy:
        return Code.UNHEALTHY
    rung = card.gpu.rung if card.gpu else Rung.NONE
    if demand.rung not in {Rung.NONE, rung} or (demand.cards > 1 and rung is Rung.MPS):
        return Code.RUNG_MISSING  # a daemon serves one card, and a process has one daemon
    if core > CORE_PER_CARD:
        return Code.COMPUTE_TOO_LARGE
    return Code.TOO_LARGE if mem > card.total else None


def _occupied(card: CardAccount, demand: Demand) -> Code | None:
    """What holds however small the share is."""
    if card.taken:
        return Code.TAKEN_WHOLE
    if demand.whole_device and not card.empty:
        return Code.SHARED_CARD
    return Code.MAX_PODS if card.crowded else None


def _short(card: CardAccount, mem: int, core: int) -> Code | None:
    if mem > card.free:
        return Code.INSUFFICIENT_MEMORY
    return Code.INSUFFICIENT_CORE if core > card.core_free else None


def refusal_of_whole(card: CardAccount) -> CardRefusal | None:
    """Why a card cannot be given away whole; ``None`` when it can."""
    if not card.healthy:
        return CardRefusal(card.index, Code.UNHEALTHY)
    if card.taken:
        return CardRefusal(card.index, Code.TAKEN_WHOLE)
    if not card.empty:
        return CardRefusal(card.index, Code.SHARED_CARD, card.free, card.total, card.total)
    return None
