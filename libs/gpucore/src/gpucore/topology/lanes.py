"""One arithmetic step on 65,536 small numbers at a time, without a numeric library.

A table over all subsets of 16 cards is packed into one Python integer, 16 bits a subset, whose
addition, masking and shifting run at the speed of memory. That makes the tables that take many
passes over all subsets cheap enough to build per machine; a loop would take 15 times longer.
"""

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

BITS: Final = 16
"""Bits of a lane; the highest is kept free for comparing."""

LIMIT: Final = (1 << (BITS - 1)) - 1
"""The largest value a lane can hold."""


def subset_maxima(values: Sequence[int], cards: int) -> "array[int]":
    """For every subset of ``cards`` cards the largest of ``values`` among its own subsets.

    Args:
        values: one for each of the ``2 ** cards`` subsets, by bit mask; 0..:data:`LIMIT`.
    """
    lanes = _packed(values)
    for card in range(cards):
        without = lanes & _without(card, cards)
        lanes = _larger(lanes, without << (BITS << card), _guards(cards))
    return _unpacked(lanes, 1 << cards)


def pair_sums(scores: Sequence[Sequence[int]]) -> "array[int]":
    """For every subset of cards the sum over its pairs, by doubling: a card comes to all before it.

    Args:
        scores: of each pair, square and symmetric, 0 or more.
    """
    lanes = 0
    for card, row in enumerate(scores):
        to_card = 0
        for other, score in enumerate(row[:card]):
            ones = _guards(other) >> (BITS - 1)
            to_card |= (to_card + score * ones) << (BITS << other)
        lanes |= (lanes + to_card) << (BITS << card)
    return _unpacked(lanes, 1 << len(scores))


def unions(masks: Sequence[int]) -> "array[int]":
    """For every subset of cards the union of the masks of its members, each below 2 ** 16."""
    lanes = 0
    for card, mask in enumerate(masks):
        lanes |= (lanes | mask * (_guards(card) >> (BITS - 1))) << (BITS << card)
    return _unpacked(lanes, 1 << len(masks))


def best_pairings(scores: Sequence[Sequence[int]]) -> "array[int]":
    """For every subset of cards the largest sum over disjoint pairs, one card left over if odd.

    By doubling: the highest card is paired with each lower one in turn. To leave it over in an even
    set is tried too; as no score is negative that is never better, so it needs no exception.

    Args:
        scores: of each pair, square and symmetric, 0 or more.
    """
    lanes = 0
    for card, row in enumerate(scores):
        best = lanes
        for other, score in enumerate(row[:card]):
            joined = (lanes & _without(other, card)) << (BITS << other)
            best = _larger(joined + score * _ones_with(other, card), best, _guards(card))
        lanes |= best << (BITS << card)
    return _unpacked(lanes, 1 << len(scores))


def best_parts(worths: Sequence[int], cards: int) -> "array[int]":
    """For every subset of cards the most that the parts are worth together, into which it is cut.

    By doubling: the highest card is in a part with each set of lower ones in turn.

    Args:
        worths: of each subset as a part, 0 or more; less where it may be none.
    """
    lanes = 0
    for card in range(cards):
        best, highest, guards = 0, 1 << card, _guards(card)
        for lower, (lacking, ones) in enumerate(_lacking(card)):
            worth = worths[highest | lower]
            if worth >= 0:
                joined = (lanes & lacking) + worth * ones << BITS * lower
                best = _larger(joined, best, guards)
        lanes |= best << (BITS << card)
    return _unpacked(lanes, 1 << cards)


def best_beside(
    worths: Sequence[int], others: Sequence[int], cards: int, size: int
) -> "array[int]":
    """For every subset the most that ``size`` of its cards and its others are worth together.

    Args:
        worths: of each subset of ``size`` cards, 0 or more.
        others: of each subset as the others, 0 or more.

    Returns:
        0 for a subset of fewer cards.
    """
    lanes, best, guards = _packed(others), 0, _guards(cards)
    for mask, (lacking, ones) in enumerate(_lacking(cards)):
        if mask.bit_count() == size:
            joined = (lanes & lacking) + worths[mask] * ones << BITS * mask
            best = _larger(joined, best, guards)
    return _unpacked(best, 1 << cards)


def _larger(a: int, b: int, guards: int) -> int:
    """Lane by lane the larger of two: a guard bit survives the subtraction where ``a`` is."""
    difference = (a | guards) - b
    survived = difference & guards
    return b + (difference & (survived - (survived >> (BITS - 1))))


@lru_cache(maxsize=256)
def _without(card: int, cards: int) -> int:
    """All ones in the lanes of the subsets that lack ``card``."""
    return _repeated((1 << (BITS << card)) - 1, BITS << (card + 1), BITS << cards)


@lru_cache(maxsize=32)
def _lacking(cards: int) -> list[tuple[int, int]]:
    """For each set all ones, and the number one, in the lanes of subsets that lack all of it."""
    found = [(1 << (BITS << cards)) - 1]
    for card in range(cards):
        found += [lanes & _without(card, cards) for lanes in found]
    return [(lanes, lanes & _guards(cards) >> (BITS - 1)) for lanes in found]


@lru_cache(maxsize=256)
def _ones_with(card: int, cards: int) -> int:
    """The number one in the lanes of the subsets that have ``card``."""
    return (_guards(cards) >> (BITS - 1) & _without(card, cards)) << (BITS << card)


@lru_cache(maxsize=32)
def _guards(cards: int) -> int:
    return _repeated(1 << (BITS - 1), BITS, BITS << cards)


def _repeated(pattern: int, period: int, width: int) -> int:
    """``pattern`` every ``period`` bits up to ``width`` bits, both powers of two apart."""
    while period < width:
        pattern |= pattern << period
        period *= 2
    return pattern


def _packed(values: Sequence[int]) -> int:
    return int.from_bytes(_little(array("H", values)).tobytes(), "little")


def _unpacked(lanes: int, count: int) -> "array[int]":
    values = array("H")
    values.frombytes(lanes.to_bytes(count * BITS // 8, "little"))
    return _little(values)


def _little(values: "array[int]") -> "array[int]":
    """Swap to or from little endian where the machine is not."""
    if sys.byteorder == "big":  # pragma: no cover - s390x
        values.byteswap()
    return values
