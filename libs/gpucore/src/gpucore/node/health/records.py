"""Health of a GPU: unhealthy at the first failure, healthy again after successful probes.

        bad sign                     clean probes, hold over
    HEALTHY ───────────► UNHEALTHY ───────────────────────► HEALTHY
                          ▲      │
                          └──────┘ bad sign: count from 0

A GPU that fails again soon after its return has to prove itself twice as long, each time, so
that it does not flap. After an XID error that requires a reset, probes are no proof, since a GPU
answers them without the reset too: it stays unhealthy until the driver reports that it needs no
recovery or, with drivers that do not report it, until the program starts anew. Times are seconds of
any steady clock, given by the caller.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

CALM_SECONDS: Final = 3600.0
"""Seconds of health after which the record of a GPU is cleared."""
MOST_DOUBLINGS: Final = 6
APPLICATION_XIDS: Final = (11, 13, 25, 31, 32, 37, 43, 45, 68, 69, 80, 109)
"""XID errors that a program of one pod can cause on a GPU that works.

Those that NVIDIA's device plugin ignores (13, 31, 43, 45, 68 and 109), and those for which NVIDIA's
XID catalog has the application checked (investigatory action CHECK_APP/CUDA).
"""
RESET_XIDS: Final = frozenset(
    {46, 48, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
)
"""XID errors after which a GPU has to be reset, or its node rebooted.

Those whose immediate action in NVIDIA's XID catalog is RESET_GPU or RESTART_BM, and 48, whose
workflow ends in a reset. 74 and 144 to 150 are not among them: whether an error of NVLink requires
a reset depends on registers that NVML does not report.
Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""


class HealthStatus(msgspec.Struct, frozen=True):
    """A change: the GPU is now offered or not, and why."""

    uuid: str
    healthy: bool
    why: str


class _Record(msgspec.Struct):
    healthy: bool = True
    needs_reset: bool = False
    why: str = ""
    clean: int = 0
    hold_until: float = 0.0
    relapses: int = 0
    since: float = 0.0
    failed: float = 0.0


class HealthRecords:
    """The record of every GPU of a node. Not safe for several threads."""

    def __init__(self, *, clean_probes: int, ignored_xids: Collection[int]) -> None:
        self._clean_probes = clean_probes
        self._ignored_xids = frozenset(ignored_xids)
        self._records: dict[str, _Record] = {}

    def watch_only(self, uuids: Iterable[str]) -> None:
        """These are the GPUs; the records of others are dropped."""
        self._records = {uuid: self._records.get(uuid, _Record()) for uuid in uuids}

    def __iter__(self) -> Iterator[str]:
        """The GPUs that are watched."""
        return iter(tuple(self._records))

    def healthy(self, uuid: str) -> bool:
        """Whether it may be offered; a GPU without health checks may."""
        record = self._records.get(uuid)
        return record is None or record.healthy

    def why(self, uuid: str) -> str:
        """What is wrong with the GPU; empty when nothing is."""
        record = self._records.get(uuid)
        return record.why if record else ""

    def xid(self, uuid: str, code: int, now: float) -> list[HealthStatus]:
        """An error event; without a UUID it concerns every GPU; some codes are ignored."""
        if code in self._ignored_xids:
            return []
        gpus = [uuid] if uuid else list(self._records)
        return [v for gpu in gpus for v in self._xid(gpu, code, now)]

    def _xid(self, uuid: str, code: int, now: float) -> list[HealthStatus]:
        record = self._records.get(uuid)
        if record is not None and code in RESET_XIDS:
            record.needs_reset = True
        return self.bad(uuid, f"XID {code}", now)

    def bad(self, uuid: str, why: str, now: float, *, hold: float = 0.0) -> list[HealthStatus]:
        """A failure; with ``hold`` the GPU stays unhealthy for at least that many seconds."""
        record = self._records.get(uuid)
        if record is None:
            return []
        record.clean, record.failed = 0, now
        record.why = why
        if not record.healthy:
            record.hold_until = max(record.hold_until, now + hold)
            return []
        calm = not record.since or now - record.since > CALM_SECONDS
        record.relapses = 0 if calm else min(record.relapses + 1, MOST_DOUBLINGS)
        record.hold_until = now + hold * 2**record.relapses
        record.healthy, record.since = False, now
        return [HealthStatus(uuid, healthy=False, why=why)]

    def clean(self, uuid: str, now: float, *, recovered: bool = False) -> list[HealthStatus]:
        """A probe that found nothing wrong; it is no proof after a failure since it began.

        Args:
            now: when the probe began, in seconds.
            recovered: the driver reports that the GPU needs no recovery, such as a reset.
        """
        record = self._records.get(uuid)
        if record is None or record.healthy or now < record.failed:
            return []
        record.needs_reset = record.needs_reset and not recovered
        if record.needs_reset:
            return []
        record.clean += 1
        if record.clean < self._clean_probes * 2**record.relapses or now < record.hold_until:
            return []
        reason = f"{record.clean} successful probes after {record.why}"
        record.healthy, record.why, record.since = True, "", now
        return [HealthStatus(uuid, healthy=True, why=reason)]
