"""Who uses more memory of a card than was handed out to it, and whom to tell of it again.

Measured, not enforced: figures are those of the driver at one moment, a CUDA context counts like
any other memory, and nobody is ever ended for what is found here.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpucore.units import GpuIndex, PodUid

AGAIN_SECONDS: Final = 600.0
"""Over-use that goes on is told again after so long."""


class Over(msgspec.Struct, frozen=True):
    """A pod that uses more of a card than it was given; bytes."""

    pod: PodUid
    card: GpuIndex
    used: int
    granted: int


def over_use(
    card: GpuIndex,
    *,
    used: Mapping[PodUid, int],
    granted: Mapping[PodUid, int],
    exempt: Collection[PodUid],
    slack: int,
) -> list[Over]:
    """The pods that use more than they were given.

    Args:
        card: the card.
        used: bytes of each pod on it.
        granted: bytes of each pod on it; a pod that holds only another card has 0.
        exempt: pods that have the card whole, or that hold no card at all.
        slack: bytes beyond the grant that are nobody's business.
    """
    return [
        Over(pod, card, size, granted.get(pod, 0))
        for pod, size in sorted(used.items())
        if pod not in exempt and size > granted.get(pod, 0) + slack
    ]


class Reminders:
    """Whom was told, and when. Times are seconds of any steady clock, given by the caller."""

    def __init__(self) -> None:
        self._told: dict[tuple[PodUid, GpuIndex], float] = {}

    def due(self, card: GpuIndex, found: Iterable[Over], now: float) -> list[Over]:
        """Those of ``found``, all of one card, that must be told now; the rest was told lately."""
        over = {(each.pod, each.card): each for each in found}
        for key in [key for key in self._told if key[1] == card and key not in over]:
            del self._told[key]
        due = [key for key in over if now - self._told.get(key, -AGAIN_SECONDS) >= AGAIN_SECONDS]
        self._told.update(dict.fromkeys(due, now))
        return [over[key] for key in due]
