"""A GPU as a bar: a segment for every pod, in one colour on all GPUs of the node."""

from collections.abc import Iterator

import msgspec

from gpucore.units import MemoryUnit
from gpuinspect.queries.gpumap import in_gib
from gpuinspect.queries.views import GpuSummary, NodeSummary, PodSummary
from gpuinspect.web.rendering import pod_link

SHADES = 6


def gib(units: float, unit: MemoryUnit) -> str:
    """Units as GiB with at most one decimal, such as ``12`` or ``1.5``."""
    return f"{in_gib(units, unit):.1f}".removesuffix(".0")


class BarSegment(msgspec.Struct, frozen=True):
    """A pod's part of a bar; sizes are percentages of the bar."""

    href: str
    title: str
    shade: int
    start: str
    width: str


class Bar(msgspec.Struct, frozen=True):
    """A GPU with its figures and marks as text.

    Attributes:
        used: part of its memory in use, such as ``40.00%``; empty where it is unknown.
    """

    label: str
    node: str
    healthy: bool
    marks: list[str]
    segments: list[BarSegment]
    used: str = ""


def gpu(node: NodeSummary, shown: GpuSummary, unit: MemoryUnit, in_use: float | None = None) -> Bar:
    """The bar of one GPU.

    Args:
        in_use: its memory in use in GiB; ``None`` where it is unknown.
    """
    holders = [(place, pod) for place, pod in enumerate(node.pods) if shown.index in pod.gpus]
    marks = [*shown.marks, *([shown.mode] if shown.mode != "none" else [])]
    label = f"GPU{shown.index} {gib(shown.used, unit)}/{gib(shown.total, unit)}"
    segments, used = list(_segments(shown, holders, unit)), ""
    if in_use is not None:
        label = f"{label}, {in_use:.1f} in use"
        most = in_gib(max(shown.total, shown.used, 1), unit)
        used = f"{min(100 * in_use / most, 100):.2f}%"
    return Bar(label, node.name, shown.healthy, marks, segments, used)


def _segments(
    shown: GpuSummary, holders: list[tuple[int, PodSummary]], unit: MemoryUnit
) -> Iterator[BarSegment]:
    scale, start = 100 / max(shown.total, shown.used, 1), 0.0
    for place, pod in holders:
        width = pod.gpus[shown.index] * scale
        link = pod_link(pod.namespace, pod.name)
        title = f"{link.text}: {gib(pod.gpus[shown.index], unit)} GiB"
        yield BarSegment(link.href, title, place % SHADES, f"{start:.2f}%", f"{width:.2f}%")
        start += width
