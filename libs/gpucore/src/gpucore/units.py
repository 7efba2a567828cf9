"""Identifiers and memory units as types, so that figures carry their unit.

The size of one unit is always explicit (``GiB``, ``MiB``, ``256MiB``), never guessed from a
magnitude: a 141 GiB GPU in GiB and a 141 MiB slice are different things although both are 141.
"""

import re
from collections.abc import Sequence
from typing import Final, NewType

import msgspec

NodeName = NewType("NodeName", str)
PodUid = NewType("PodUid", str)
GpuIndex = NewType("GpuIndex", int)
"""Position of a GPU in NVML's enumeration of its node, from 0."""
GpuUuid = NewType("GpuUuid", str)

MIB_BYTES: Final = 1 << 20
GIB_BYTES: Final = 1 << 30
MILLI: Final = 1000
"""Parts that a GPU is measured in where memory and compute are compared."""
_MIB_PER: Final = {"MiB": 1, "GiB": 1024}
_UNIT: Final = re.compile(r"(?P<count>[1-9][0-9]{0,6})?(?P<scale>MiB|GiB)")


class UnitError(ValueError):
    """The text names no unit of memory."""


class MemoryUnit(msgspec.Struct, frozen=True, order=True):
    """The size of one schedulable unit of GPU memory.

    Attributes:
        mib: size in MiB, at least 1.
    """

    mib: int

    @classmethod
    def parse(cls, text: str) -> "MemoryUnit":
        """Read ``GiB``, ``MiB`` or a multiple such as ``256MiB``.

        Raises:
            UnitError: the text is anything else.
        """
        match = _UNIT.fullmatch(text)
        if match is None:
            raise UnitError(
                f"{text!r} is not a unit of memory: use GiB, MiB or a size such as 256MiB"
            )
        return cls(int(match["count"] or 1) * _MIB_PER[match["scale"]])

    def units_in(self, memory_mib: int) -> int:
        """Whole units that fit in ``memory_mib`` MiB, rounded down."""
        return max(memory_mib, 0) // self.mib

    def units_for(self, memory_mib: int) -> int:
        """Units needed to hold ``memory_mib`` MiB, rounded up."""
        return -(-max(memory_mib, 0) // self.mib)

    def __str__(self) -> str:
        """``GiB``, ``MiB``, or the size with its scale; reads back through :meth:`parse`."""
        if self.mib % 1024 == 0:
            count, scale = self.mib // 1024, "GiB"
        else:
            count, scale = self.mib, "MiB"
        return scale if count == 1 else f"{count}{scale}"


GIB: Final = MemoryUnit(1024)
MIB: Final = MemoryUnit(1)


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """The first ``most`` names and how many more there are: ``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
