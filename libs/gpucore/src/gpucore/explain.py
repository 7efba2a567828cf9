"""Refusals and placements as sentences that a person woken at night can act on.

Sentences begin with the originals' own text where they had one: people's tools look for it.
"""

from collections.abc import Collection
from typing import Final

from gpucore.account import NodeAccount
from gpucore.catalogue import CATALOGUE, Entry, catalogue_page
from gpucore.model import CardRefusal, Cards, Code, Demand, Placement, Refusal
from gpucore.scheduling.constraints import CPU
from gpucore.units import GIB, MIB, MemoryUnit

__all__ = [
    "CATALOGUE",
    "CONSTRAINT_CODES",
    "Entry",
    "amount_hint",
    "cards_named",
    "catalogue_page",
    "headline",
    "placement_sentence",
    "request_words",
    "resource_words",
    "sentence",
    "unit_of",
]

GIB_CARDS_END: Final = 100
"""The original's guess: a card of more units is counted in MiB. Wrong for 101 GiB and more."""

_MIB: Final = 1 << 20
INSUFFICIENT: Final = "Insufficient GPU Memory in one device"
_SHARE_CODES: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.MAX_PODS,
        Code.SHARED_CARD,
        Code.TAKEN_WHOLE,
        Code.UNHEALTHY,
        Code.TOO_LARGE,
        Code.COMPUTE_TOO_LARGE,
        Code.RUNG_MISSING,
        Code.PENDING_UNITS,
    }
)
CONSTRAINT_CODES: Final = frozenset(
    {
        Code.NODE_UNSCHEDULABLE,
        Code.TAINT_NOT_TOLERATED,
        Code.NODE_AFFINITY,
        Code.INSUFFICIENT_RESOURCES,
    }
)
"""Codes of rules that are kube-scheduler's own, not about GPUs."""
_MEMORY_CODES: Final = frozenset({Code.INSUFFICIENT_MEMORY, Code.TOO_LARGE, Code.PENDING_UNITS})


def headline(refusal: Refusal) -> str:
    """The reason without figures of cards: equal for equal reasons, so that they can be counted."""
    if refusal.code is Code.NOT_SHARED:
        return f"The node {refusal.node} is not for GPU share, need skip"
    if refusal.code in _MEMORY_CODES:
        return INSUFFICIENT
    if refusal.code is Code.INVALID_REQUEST:
        return f"The pod cannot be placed anywhere: {refusal.detail}"
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return f"Insufficient {refusal.detail}"
    return CATALOGUE[refusal.code].sentence.rstrip(".")


def sentence(refusal: Refusal) -> str:
    """The reason with every figure."""
    words = _words(refusal)
    return f"{headline(refusal)}: {words}" if words else headline(refusal)


def _words(refusal: Refusal) -> str:
    unit = _unit(refusal.unit)
    if refusal.code in _SHARE_CODES and refusal.code is not Code.PENDING_UNITS:
        return _share_words(refusal, unit)
    if refusal.code is Code.PENDING_UNITS:
        return (
            f"asked {refusal.asked}{unit}, {refusal.free} free of the node once {refusal.total} "
            "are kept for pods on unknown cards"
        )
    if refusal.code is Code.INSUFFICIENT_GPUS:
        return f"asked {refusal.asked}, {refusal.free} of {refusal.total} cards are free" + _and(
            _cards(refusal)
        )
    if refusal.code is Code.UNEVEN_SPLIT:
        return f"{refusal.asked}{unit} over {refusal.total} cards"
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return resource_words(refusal)
    return refusal.detail if refusal.code in CONSTRAINT_CODES else ""


def resource_words(refusal: Refusal) -> str:
    """``asked 8, 1.5 of 4 free``, memory with its unit."""
    asked, free, total = (
        _quantity(refusal.detail, value) for value in (refusal.asked, refusal.free, refusal.total)
    )
    return f"asked {asked}, {free} of {total} free"


def _quantity(resource: str, value: int) -> str:
    if resource == CPU:
        return f"{value / 1000:g}"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        return f"{value / 2**30:.4g} GiB"
    return str(value)


def _share_words(refusal: Refusal, unit: str) -> str:
    wanted = "no card" if refusal.total == 1 else f"{refusal.free} of {refusal.total} cards"
    words = f"{wanted} can take {refusal.asked}{unit}"
    if refusal.code is Code.INSUFFICIENT_MEMORY:
        words = f"{wanted} has {refusal.asked}{unit} free"
    return words + _and(_cards(refusal)) + amount_hint(refusal)


def _and(cards: str) -> str:
    return f": {cards}" if cards else ""


def _cards(refusal: Refusal) -> str:
    return ", ".join(map(_card, refusal.cards))


_CARD_WORDS: Final = {
    Code.INSUFFICIENT_MEMORY: "has {free} of {total} free",
    Code.INSUFFICIENT_CORE: "has {free} of {total} percent of compute free, asked {asked}",
    Code.TOO_LARGE: "has {total} in all",
    Code.COMPUTE_TOO_LARGE: "has {total} percent of compute in all, asked {asked}",
    Code.MAX_PODS: "holds its {total} pods",
    Code.SHARED_CARD: "is shared",
    Code.TAKEN_WHOLE: "is taken whole",
    Code.UNHEALTHY: "is unhealthy",
    Code.RUNG_MISSING: "cannot enforce the share",
}


def _card(card: CardRefusal) -> str:
    words = _CARD_WORDS[card.code].format(free=card.free, total=card.total, asked=card.asked)
    return f"card {card.index} {words}"


def amount_hint(refusal: Refusal) -> str:
    """What was probably meant by an amount in MiB or in bytes (``8Gi``); said, never assumed."""
    largest = max((card.total for card in refusal.cards), default=0)
    if refusal.code is not Code.TOO_LARGE or refusal.unit is None:
        return ""
    size = refusal.unit.mib
    if refusal.asked % (size * _MIB) == 0 and refusal.asked // (size * _MIB) <= largest:
        count = refusal.asked // (size * _MIB)
        return f"; amounts are whole numbers of {refusal.unit}: write {count}"
    if refusal.asked >= size // 4 > 0 and refusal.unit.units_for(refusal.asked) <= largest:
        return f"; if MiB were meant, ask for {refusal.unit.units_for(refusal.asked)}"
    return ""


def _unit(unit: MemoryUnit | None) -> str:
    if unit is None:
        return " units"
    text = str(unit)
    return f" {text}" if not text[0].isdigit() else f" units of {text}"


def placement_sentence(placement: Placement, unit: MemoryUnit | None) -> str:
    """Where a pod sits, e.g. ``8 GiB on card 1 of node n1``."""
    if placement.group:
        return f"{cards_named(placement.group)} of node {placement.node}, whole"
    parts = [_amounts(placement.mem, _unit(unit))] if placement.mem else []
    parts += [_amounts(placement.core, " percent of compute")] if placement.core else []
    return (
        f"{' and '.join(parts)} of node {placement.node}"
        if parts
        else (f"no known card of node {placement.node}")
    )


def _amounts(cards: Cards, unit: str) -> str:
    return ", ".join(f"{amount}{unit} on card {index}" for index, amount in sorted(cards.items()))


def cards_named(cards: Collection[int]) -> str:
    """``card 3`` or ``cards 3, 0``, in the order given."""
    noun = "card" if len(cards) == 1 else "cards"
    return f"{noun} {', '.join(map(str, cards))}"


def unit_of(account: NodeAccount) -> MemoryUnit:
    """What the node counts in: as its plugin says, else as the original guesses."""
    largest = max((card.total for card in account.cards.values()), default=0)
    return account.unit or (MIB if largest > GIB_CARDS_END else GIB)


def request_words(demand: Demand) -> str:
    """What a pod requests, in words."""
    if demand.gpus:
        return f"{demand.gpus} card" if demand.gpus == 1 else f"{demand.gpus} cards"
    parts = [f"{demand.mem} units of GPU memory"] if demand.mem else []
    parts += [f"{demand.core} % of compute"] if demand.core else []
    return " and ".join(parts)
