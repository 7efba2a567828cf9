"""Whether a card may be offered: down at the first bad sign, up again only after proof.

        bad sign                     clean probes, hold over
    HEALTHY ───────────► UNHEALTHY ───────────────────────► HEALTHY
                          ▲      │
                          └──────┘ bad sign: count from 0

A card that fails again soon after its return has to prove itself twice as long, each time, so
that it does not flap. Times are seconds of any steady clock, given by the caller.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

CALM_SECONDS: Final = 3600.0
"""A card that was healthy for so long starts with a clean record."""
MOST_DOUBLINGS: Final = 6


class Verdict(msgspec.Struct, frozen=True):
    """A change: the card is now offered or not, and why."""

    uuid: str
    healthy: bool
    why: str


class _Record(msgspec.Struct):
    healthy: bool = True
    why: str = ""
    clean: int = 0
    hold_until: float = 0.0
    relapses: int = 0
    since: float = 0.0


class HealthBook:
    """The record of every card of a node. Not safe for several threads."""

    def __init__(self, *, clean_probes: int, ignored_xids: Collection[int]) -> None:
        self._clean_probes = clean_probes
        self._ignored_xids = frozenset(ignored_xids)
        self._records: dict[str, _Record] = {}

    def watch_only(self, uuids: Iterable[str]) -> None:
        """These are the cards; the records of others are dropped."""
        self._records = {uuid: self._records.get(uuid, _Record()) for uuid in uuids}

    def __iter__(self) -> Iterator[str]:
        """The cards that are watched."""
        return iter(tuple(self._records))

    def healthy(self, uuid: str) -> bool:
        """May be offered; a card that nobody watches may."""
        record = self._records.get(uuid)
        return record is None or record.healthy

    def why(self, uuid: str) -> str:
        """What is wrong with the card; empty when nothing is."""
        record = self._records.get(uuid)
        return record.why if record else ""

    def xid(self, uuid: str, code: int, now: float) -> list[Verdict]:
        """An error event; without a uuid it is of every card, and some codes are nobody's fault."""
        if code in self._ignored_xids:
            return []
        cards = [uuid] if uuid else list(self._records)
        return [v for card in cards for v in self.bad(card, f"XID {code}", now)]

    def bad(self, uuid: str, why: str, now: float, *, hold: float = 0.0) -> list[Verdict]:
        """A bad sign; with ``hold`` the card stays down for so many seconds at least."""
        record = self._records.get(uuid)
        if record is None:
            return []
        record.clean = 0
        record.why = why
        if not record.healthy:
            record.hold_until = max(record.hold_until, now + hold)
            return []
        calm = not record.since or now - record.since > CALM_SECONDS
        record.relapses = 0 if calm else min(record.relapses + 1, MOST_DOUBLINGS)
        record.hold_until = now + hold * 2**record.relapses
        record.healthy, record.since = False, now
        return [Verdict(uuid, healthy=False, why=why)]

    def clean(self, uuid: str, now: float) -> list[Verdict]:
        """A probe that found nothing wrong."""
        record = self._records.get(uuid)
        if record is None or record.healthy:
            return []
        record.clean += 1
        if record.clean < self._clean_probes * 2**record.relapses or now < record.hold_until:
            return []
        said = f"{record.clean} clean probes after {record.why}"
        record.healthy, record.why, record.since = True, "", now
        return [Verdict(uuid, healthy=True, why=said)]
