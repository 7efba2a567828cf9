"""The table of GPUs of ``arena top node -d --metric``, and its summary."""

from collections.abc import Sequence
from typing import Final

from gpuinspect.topnodes import TopGpu, TopNode

_GIB: Final = 1 << 30
_TITLES: Final = ("INDEX", "MEMORY(Total)", "MEMORY(Allocated)", "MEMORY(Used)", "DUTY_CYCLE")
UNKNOWN: Final = "-"


def gpu_table(node: TopNode) -> str:
    """One line a GPU, then the memory of the node; a figure that nobody has is a dash."""
    if not node.gpus:
        return ""
    dashes = ["-" * len(title) for title in _TITLES]
    rows = [_TITLES, dashes, *(_row(gpu) for gpu in node.gpus)]
    lines = "".join("  " + "\t".join(row) + "\n" for row in rows)
    return f"\nGPUs:\n{lines}{_summary(node.gpus)}"


def _row(gpu: TopGpu) -> Sequence[str]:
    percent = UNKNOWN if gpu.utilization is None else f"{gpu.utilization:.1f}%"
    amounts = (gpu.total_bytes, gpu.allocated_bytes, gpu.used_bytes)
    return [str(gpu.index), *map(_gib, amounts), percent]


def _summary(gpus: Sequence[TopGpu]) -> str:
    known = [gpu.used_bytes for gpu in gpus if gpu.used_bytes is not None]
    figures = {
        "Total GPU Memory": sum(gpu.total_bytes for gpu in gpus),
        "Allocated GPU Memory": sum(gpu.allocated_bytes for gpu in gpus),
        "Used GPU Memory": sum(known) if known else None,
    }
    return "".join(f"{title}:\t{_gib(amount)}\t\n" for title, amount in figures.items())


def _gib(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount / _GIB:.1f} GiB"
