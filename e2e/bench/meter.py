"""What each process spends, and how busy the machine was: where the time goes."""

import os
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Meter:
    """CPU time of some processes; this one is among them as ``rig``.

    Args:
        pids: process ids by name.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = {**pids, "rig": os.getpid()}
        self._from = self._now()

    def milliseconds(self, *, each_of: int) -> dict[str, float]:
        """Milliseconds since the meter was made, by process, for each of so many things done."""
        return {
            name: (spent - self._from[name]) * 1000 / each_of for name, spent in self._now().items()
        }

    def _now(self) -> dict[str, float]:
        return {name: spent(pid) for name, pid in self._pids.items()}


def spent(pid: int) -> float:
    """Seconds of CPU, in user and in system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def load() -> float:
    """Load average of the last minute."""
    return round(os.getloadavg()[0], 2)
