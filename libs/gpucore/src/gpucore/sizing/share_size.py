"""The size of a share: the memory that it requests, and the most that it may use."""

from typing import Final

import msgspec

from gpucore.units import MIB_BYTES, MemoryUnit

_PERCENT: Final = 100


class ContainerSize(msgspec.Struct, frozen=True):
    """Request and burst limit of one container, in units of GPU memory.

    Attributes:
        request: what the accounting counts and no other pod gets.
        burst: units that it may use in all, where these are more than ``request``; 0 otherwise.
    """

    request: int
    burst: int = 0

    @property
    def limit(self) -> int:
        """The most that it may use."""
        return max(self.request, self.burst)

    @classmethod
    def of(cls, request: int, limit: int) -> "ContainerSize":
        """A size whose limit is a burst limit only where it is above the request."""
        return cls(request, limit if limit > request else 0)

    @classmethod
    def of_bytes(cls, requested: int, limit: int, unit: MemoryUnit) -> "ContainerSize":
        """The size of these amounts in bytes; a limit of 0 is none."""
        return cls.of(units_for(requested, unit), units_for(limit, unit))


def units_for(amount: int, unit: MemoryUnit, *, margin: int = 0) -> int:
    """Units that hold ``amount`` bytes and ``margin`` percent more, rounded up."""
    return -(-amount * (_PERCENT + margin) // (unit.mib * MIB_BYTES * _PERCENT))
