"""Memory allocated and in use over the last hours, in the memory of the dashboard.

One value a slot of two minutes, for the cluster and for each node; the newest value of a slot
counts. The size is bounded: :data:`MOST` nodes, :data:`SLOTS` slots, nine bytes each, so at most
17 MB. Nodes that are gone are dropped.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

STEP_SECONDS: Final = 120
SLOTS: Final = 180
MOST: Final = 10_000
CLUSTER: Final = ""
"""Name of the sums over all nodes."""


class Amounts(msgspec.Struct, frozen=True):
    """Memory at one moment, in GiB.

    Attributes:
        used: ``None`` where there is no figure.
        partial: ``used`` is that of a part of the GPUs; of the others it is unknown.
    """

    allocated: float
    used: float | None = None
    partial: bool = False


class Point(msgspec.Struct, frozen=True):
    """One slot of a series.

    Attributes:
        when: Unix seconds at which the slot begins.
    """

    when: int
    amounts: Amounts


class _Series:
    """Two rings of values; NaN is unknown."""

    def __init__(self) -> None:
        self.allocated = array("f", [math.nan]) * SLOTS
        self.used = array("f", [math.nan]) * SLOTS
        self.partial = bytearray(SLOTS)

    def put(self, slot: int, amounts: Amounts | None) -> None:
        unknown = amounts is None or amounts.used is None
        self.allocated[slot % SLOTS] = math.nan if amounts is None else amounts.allocated
        self.used[slot % SLOTS] = math.nan if unknown else amounts.used  # type: ignore[union-attr,assignment]
        self.partial[slot % SLOTS] = amounts is not None and amounts.partial

    def at(self, slot: int) -> Amounts | None:
        allocated, used = self.allocated[slot % SLOTS], self.used[slot % SLOTS]
        if math.isnan(allocated):
            return None
        return Amounts(allocated, _number(used), bool(self.partial[slot % SLOTS]))


class History:
    """The last :data:`SLOTS` slots; one writer, any number of readers."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._last = -1

    def add(self, now: float, amounts: Mapping[str, Amounts]) -> None:
        """Enter the amounts of this moment.

        Args:
            now: Unix seconds; a time before the last one is ignored.
            amounts: by node; :data:`CLUSTER` for the sums.
        """
        slot = int(now) // STEP_SECONDS
        if slot < self._last:
            return
        self._skip_to(slot)
        names = list(amounts)[:MOST]
        kept = {name: self._series.get(name) or _Series() for name in names}
        for name, series in kept.items():
            series.put(slot, amounts[name])
        self._series, self._last = kept, slot

    def _skip_to(self, slot: int) -> None:
        """Empty the slots in which nothing was read."""
        first = max(self._last + 1, slot - SLOTS + 1)
        for series in self._series.values():
            for missed in range(first, slot):
                series.put(missed, None)

    def of(self, name: str) -> Sequence[Point]:
        """The known points, oldest first; empty for an unknown name."""
        series, last = self._series.get(name), self._last
        if series is None:
            return ()
        slots = range(max(last - SLOTS + 1, 0), last + 1)
        known = ((slot, series.at(slot)) for slot in slots)
        return [Point(slot * STEP_SECONDS, found) for slot, found in known if found is not None]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
