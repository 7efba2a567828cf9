"""Used against requested GPU memory of each workload."""

from typing import Final

import msgspec

from gpucore.sizing.recommendation import Recommendation
from gpucore.units import GIB_BYTES

_MIB_PER_GIB: Final = 1024


class SizedWorkload(msgspec.Struct, frozen=True):
    """One container of a workload.

    Attributes:
        found: what it requests, what it used, and what it should request.
        running: number of its pods that run now.
    """

    found: Recommendation
    running: int

    @property
    def requested(self) -> float:
        """GiB that a pod requests."""
        return self.found.current.request * self.found.unit.mib / _MIB_PER_GIB

    @property
    def waste_of_pod(self) -> float:
        """GiB that a pod requests beyond the most that was ever used."""
        return max(self.requested - self.found.peak_bytes / GIB_BYTES, 0.0)

    @property
    def waste(self) -> float:
        """GiB that all running pods request beyond that."""
        return self.waste_of_pod * self.running


class WorkloadSizes(msgspec.Struct, frozen=True):
    """Every container that was measured within a week of the newest sample.

    Attributes:
        items: most waste first.
        note: why there are none, or what could not be read; empty otherwise.
    """

    items: tuple[SizedWorkload, ...] = ()
    note: str = ""
