"""Stops a storm: a card on which pod after pod fails to start is withdrawn.

A card can answer every probe and still run nothing. A controller then creates pods for ever, each
one placed on that card because it looks free. Several pods failing there, and none starting, is
the sign.
"""

from collections.abc import Iterable
from typing import Final

from gpucore.units import GpuIndex, PodUid

WINDOW_SECONDS: Final = 600.0
HOLD_SECONDS: Final = 300.0
"""How long a withdrawn card stays away at least."""


class Breaker:
    """Failures of every card in a window of time. Not safe for several threads."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._failures: dict[GpuIndex, dict[str, float]] = {}

    def failed(self, cards: Iterable[GpuIndex], what: PodUid | str, now: float) -> list[GpuIndex]:
        """``what`` (a pod, once) failed on ``cards``; returns those that must be withdrawn."""
        tripped = []
        for card in cards:
            failures = self._failures.setdefault(card, {})
            failures.setdefault(what, now)
            recent = {key: at for key, at in failures.items() if now - at < WINDOW_SECONDS}
            self._failures[card] = recent
            if len(recent) >= self._limit:
                del self._failures[card]
                tripped.append(card)
        return tripped

    def started(self, cards: Iterable[GpuIndex]) -> None:
        """A pod runs on ``cards``, so they are not broken."""
        for card in cards:
            self._failures.pop(card, None)
