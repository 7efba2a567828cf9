"""``kubectl inspect gpu``: exclusive GPUs, who holds them, and how they are joined.

The spelling ``topolocy`` is the original's, and tools look for it.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_infos import node_matrix
from gpucore.topology.drawing import LEGEND, RULE, draw
from gpucore.wire.names import NODE_TYPE, Names
from gpucore.wire.node.spec import Node
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import policy_of
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, fail, note, note_all, reading
from gpuinspect.commands.options.selecting import OnlyNode, Selector, selected
from gpuinspect.documents.gpunode import gpu_node_list
from gpuinspect.errors import MissingObjectError
from gpuinspect.layout.shares import pending_gpus
from gpuinspect.queries.shares import view_of_nodes
from gpuinspect.queries.views import GpuNode, GpuWithPods
from gpuinspect.terminal.output import table


@reading
def gpu(
    reader: Reader,
    node: OnlyNode = "",
    *,
    details: Annotated[
        bool, typer.Option("-d", "--details", help="also show the link matrix")
    ] = False,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show the number of GPUs and of GPUs in use; with -d also how they are connected."""
    snapshot = selected(reader.source.read(*COUNTED), selector)
    ledger = ledger_of(snapshot, reader.names)
    nodes = [each for each in snapshot.nodes if node in {"", each.name}]
    if node and not nodes:
        raise MissingObjectError(f'nodes "{node}" not found')
    found = [_gpu_node(each, ledger, reader.names) for each in nodes]
    policy = policy_of(snapshot)
    found = sorted((each for each in found if each.gpus), key=lambda each: each.name)
    if not found:
        fail("no node offers exclusive GPUs")
    if output.is_document:
        emit(gpu_node_list(found, policy.topology), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in found))
    elif details:
        sys.stdout.write(_details(found, policy.topology))
        _notes(found)
    else:
        sys.stdout.write(_summary(found, headers=not no_headers))
    if output in {Format.TABLE, Format.WIDE}:
        note_all(line for each in found for line in pending_gpus(each.name, each.pending))
    note_all(gaps(snapshot, NO_CLAIMS))


def _gpu_node(node: Node, ledger: Ledger, names: Names) -> GpuNode:
    gpus, node_info = [], ledger.nodes()[node.name]
    for device in node_info.devices.values():
        if device.gpu is not None:
            allocations = (node_info.allocations[uid] for uid in device.holders)
            holders = tuple(
                sorted(f"{allocation.namespace}/{allocation.name}" for allocation in allocations)
            )
            facts = device.gpu
            gpus.append(
                GpuWithPods(
                    device.index, facts.uuid, facts.model, facts.numa, device.healthy, holders
                )
            )
    matrix = node_matrix(node, names)
    (summary,) = view_of_nodes(ledger, [node], every_pod=False).nodes
    node_type = node.annotations.get(NODE_TYPE, "")
    return GpuNode(node.name, node_type, tuple(gpus), matrix, summary.pending_gpus)


def _notes(nodes: list[GpuNode]) -> None:
    for node in nodes:
        for remark in node.matrix.notes if node.matrix else ():
            note(f"note: {node.name}: {remark}")


def _summary(nodes: Sequence[GpuNode], *, headers: bool) -> str:
    """One line a node: GPUs there are, GPUs in use."""
    rows = ((node.name, str(len(node.gpus)), str(node.gpus_in_use)) for node in nodes)
    return table(("NAME", "ALLGPU", "USEDGPU"), rows, headers=headers)


def _details(nodes: Sequence[GpuNode], policy: str) -> str:
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
        f"used gpu: {node.gpus_in_use}",
    ]
    lines += [f"node type: {node.node_type}"] if node.node_type else []
    matrix = "" if node.matrix is None else f"gpu topolocy:\n{draw(node.matrix, node.used)}"
    holders = "".join(
        f"GPU{device.index}: {', '.join(device.holders)}\n"
        for device in node.gpus
        if device.holders
    )
    return "\n".join(lines) + f"\n{matrix}{holders}"
