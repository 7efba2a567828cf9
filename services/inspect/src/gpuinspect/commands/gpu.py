"""``kubectl inspect gpu``: exclusive GPUs, who holds them, and how they are joined."""

import sys
from typing import Annotated

import typer

from gpucore.accounting.node_info import NodeInfo
from gpucore.accounting.node_reading import node_matrix
from gpucore.wire.names import NODE_TYPE, Names
from gpucore.wire.nodes import Node
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import policy_of
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, fail, note, reading
from gpuinspect.commands.options.selecting import Selector, selected
from gpuinspect.documents.gpunode import gpu_node_list
from gpuinspect.errors import MissingObjectError
from gpuinspect.layout.gpunode import details as detail_text
from gpuinspect.layout.gpunode import summary
from gpuinspect.queries.views import GpuNode, GpuWithPods


@reading
def gpu(
    reader: Reader,
    node: Annotated[
        str, typer.Argument(help="only this node", metavar="NODE", autocompletion=answers.nodes)
    ] = "",
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
    found = [_gpu_node(each, ledger.nodes()[each.name], reader.names) for each in nodes]
    policy = policy_of(snapshot)
    found = sorted((each for each in found if each.gpus), key=lambda each: each.name)
    if not found:
        fail("no node offers exclusive GPUs")
    if output.is_document:
        emit(gpu_node_list(found, policy.topology), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in found))
    elif details:
        sys.stdout.write(detail_text(found, policy.topology))
        _notes(found)
    else:
        sys.stdout.write(summary(found, headers=not no_headers))


def _gpu_node(node: Node, node_info: NodeInfo, names: Names) -> GpuNode:
    gpus = []
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
    return GpuNode(node.name, node.annotations.get(NODE_TYPE, ""), tuple(gpus), matrix)


def _notes(nodes: list[GpuNode]) -> None:
    for node in nodes:
        for remark in node.matrix.notes if node.matrix else ():
            note(f"note: {node.name}: {remark}")
