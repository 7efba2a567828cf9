"""``kubectl inspect gpu``: whole cards, who holds them, and how they are joined."""

import sys
from typing import Annotated

import msgspec
import typer

from gpucore.account import NodeAccount
from gpucore.topology.codec import node_matrix
from gpucore.wire.names import NODE_TYPE, Names
from gpucore.wire.nodes import Node
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.cli.reading import Reader, fail, note, reading
from gpuinspect.cli.selecting import Selector, selected
from gpuinspect.collect import CONFIG_MAPS
from gpuinspect.documents import API_VERSION
from gpuinspect.errors import NotFoundError
from gpuinspect.layout.gpunode import GpuNode, HeldCard, summary
from gpuinspect.layout.gpunode import details as detail_text
from gpuinspect.schedulers import policy_of
from gpuinspect.state import books


class GpuNodeDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One node; ``links`` is ``"0-1"`` to what joins the two cards."""

    name: str
    node_type: str
    all_gpu: int
    used_gpu: int
    gpus: list[HeldCard]
    links: dict[str, list[str]]


class GpuNodeList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``kubectl inspect gpu -o json``; ``policy`` chooses cards by their links."""

    api_version: str
    kind: str
    items: list[GpuNodeDoc]
    policy: str


@reading
def gpu(
    reader: Reader,
    node: Annotated[str, typer.Argument(help="only this node", metavar="NODE")] = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="with the matrix")] = False,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show cards there are, cards in use, and with -d how they are joined."""
    snapshot = selected(reader.source.read(CONFIG_MAPS), selector)
    ledger = books(snapshot, reader.names)
    nodes = [each for each in snapshot.nodes if node in {"", each.name}]
    if node and not nodes:
        raise NotFoundError(f'nodes "{node}" not found')
    found = [_gpu_node(each, ledger.nodes()[each.name], reader.names) for each in nodes]
    policy = policy_of(snapshot)
    found = sorted((each for each in found if each.cards), key=lambda each: each.name)
    if not found:
        fail("no node with GPUs that are ours to give")
    if output in {Format.JSON, Format.YAML}:
        documents = [_document(each) for each in found]
        emit(GpuNodeList(API_VERSION, "GpuNodeList", documents, policy.topology), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in found))
    elif details:
        sys.stdout.write(detail_text(found, policy.topology))
        _notes(found)
    else:
        sys.stdout.write(summary(found, headers=not no_headers))


def _gpu_node(node: Node, account: NodeAccount, names: Names) -> GpuNode:
    cards = []
    for card in account.cards.values():
        if card.gpu is not None:
            claims = (account.claims[uid] for uid in card.holders)
            holders = tuple(sorted(f"{claim.namespace}/{claim.name}" for claim in claims))
            facts = card.gpu
            cards.append(
                HeldCard(card.index, facts.uuid, facts.model, facts.numa, card.healthy, holders)
            )
    matrix = node_matrix(node, names)
    return GpuNode(node.name, node.annotations.get(NODE_TYPE, ""), tuple(cards), matrix)


def _notes(nodes: list[GpuNode]) -> None:
    for node in nodes:
        for remark in node.matrix.notes if node.matrix else ():
            note(f"note: {node.name}: {remark}")


def _links(node: GpuNode) -> dict[str, list[str]]:
    if node.matrix is None:
        return {}
    return {f"{a}-{b}": list(links) for (a, b), links in sorted(node.matrix.links.items())}


def _document(node: GpuNode) -> GpuNodeDoc:
    return GpuNodeDoc(
        name=node.name,
        node_type=node.node_type,
        all_gpu=len(node.cards),
        used_gpu=len(node.used),
        gpus=list(node.cards),
        links=_links(node),
    )
