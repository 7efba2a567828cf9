"""A GPU as a bar: a segment for every pod, in one colour on all GPUs of the node."""

from collections.abc import Iterator

import msgspec

from gpuinspect.queries.views import GpuSummary, NodeSummary, PodSummary
from gpuinspect.web.rendering import pod_link

SHADES = 6


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


def gpu(node: NodeSummary, shown: GpuSummary, in_use: float | None = None) -> Bar:
    """The bar of one GPU; ``in_use`` is its memory in use in units, ``None`` where unknown."""
    holders = [(place, pod) for place, pod in enumerate(node.pods) if shown.index in pod.gpus]
    marks = [
        word
        for word, holds in (
            ("unhealthy", not shown.healthy),
            ("exclusive", shown.whole),
            ("over-allocated", shown.used > shown.total),
            (shown.mode, shown.mode != "none"),
        )
        if holds
    ]
    label = f"GPU{shown.index} {shown.used}/{shown.total}"
    segments, used = list(_segments(shown, holders)), ""
    if in_use is not None:
        label = f"{label}, {in_use:.1f} in use"
        used = f"{min(100 * in_use / max(shown.total, shown.used, 1), 100):.2f}%"
    return Bar(label, node.name, shown.healthy, marks, segments, used)


def _segments(shown: GpuSummary, holders: list[tuple[int, PodSummary]]) -> Iterator[BarSegment]:
    scale, start = 100 / max(shown.total, shown.used, 1), 0.0
    for place, pod in holders:
        width = pod.gpus[shown.index] * scale
        link = pod_link(pod.namespace, pod.name)
        title = f"{link.text}: {pod.gpus[shown.index]}"
        yield BarSegment(link.href, title, place % SHADES, f"{start:.2f}%", f"{width:.2f}%")
        start += width
