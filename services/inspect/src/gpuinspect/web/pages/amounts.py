"""Amounts of GPU memory as the pages write them: in GiB, whatever unit the nodes count in."""

from gpucore.units import MemoryUnit
from gpuinspect.queries.gpumap import in_gib


def gib(units: float, unit: MemoryUnit) -> str:
    """Units as GiB with at most one decimal, such as ``12`` or ``1.5``."""
    return f"{in_gib(units, unit):.1f}".removesuffix(".0")
