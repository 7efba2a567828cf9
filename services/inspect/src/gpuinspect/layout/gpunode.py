"""The tables of ``kubectl inspect gpu``: exclusive GPUs and how they are joined.

The spelling ``topolocy`` is the original's, and tools look for it.
"""

from collections.abc import Sequence

from gpucore.topology.drawing import LEGEND, RULE, draw
from gpuinspect.queries.views import GpuNode
from gpuinspect.terminal.tables import align


def summary(nodes: Sequence[GpuNode], *, headers: bool = True) -> str:
    """One line a node: GPUs there are, GPUs in use."""
    head = "NAME\tALLGPU\tUSEDGPU\n" if headers else ""
    rows = (f"{node.name}\t{len(node.gpus)}\t{len(node.used)}\n" for node in nodes)
    return align(head + "".join(rows))


def details(nodes: Sequence[GpuNode], policy: str) -> str:
    """The policy that chooses GPUs, a block a node with its matrix, and the legend at the end."""
    return (
        f"gpu policy: {policy}\n{RULE}\n"
        + "".join(f"{_block(node)}{RULE}\n" for node in nodes)
        + LEGEND
    )


def _block(node: GpuNode) -> str:
    lines = [
        f"node name: {node.name}",
        f"all gpu: {len(node.gpus)}",
        f"used gpu: {len(node.used)}",
    ]
    lines += [f"node type: {node.node_type}"] if node.node_type else []
    matrix = "" if node.matrix is None else f"gpu topolocy:\n{draw(node.matrix, node.used)}"
    holders = "".join(
        f"GPU{device.index}: {', '.join(device.holders)}\n"
        for device in node.gpus
        if device.holders
    )
    return "\n".join(lines) + f"\n{matrix}{holders}"
