"""``gpushare top node``: arena's view of the cards of a cluster."""

import sys
from typing import Annotated

import typer

from gpuinspect import state
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.cli.reading import Reader, note, reading
from gpuinspect.cli.selecting import Selector, selected
from gpuinspect.collect import CONFIG_MAPS
from gpuinspect.documents import node_share_list
from gpuinspect.layout import sharenode, topnode
from gpuinspect.topdocuments import node_gpu_list
from gpuinspect.topnodes import top_nodes
from gpuinspect.views import ClusterView

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def top() -> None:
    """Show how the cards of a cluster are used."""


@app.command("node")
@reading
def top_node(
    reader: Reader,
    node: Annotated[str, typer.Argument(help="only this node", metavar="NODE")] = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="with pods")] = False,
    share: Annotated[
        bool, typer.Option("-s", "--share", help="only nodes that share, in units of memory")
    ] = False,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show cards there are and cards in use, node by node; shares count as fractions of cards."""
    snapshot = selected(reader.source.read(CONFIG_MAPS), selector)
    if share:
        view = state.shares(snapshot, reader.names, node=node)
        _shares(view, details=details, output=output, headers=not no_headers)
        return
    nodes = top_nodes(snapshot, reader.names, node=node)
    if output in {Format.JSON, Format.YAML}:
        emit(node_gpu_list(nodes), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in nodes))
    elif details:
        sys.stdout.write(topnode.details(nodes))
    else:
        sys.stdout.write(topnode.summary(nodes, headers=not no_headers))


def _shares(view: ClusterView, *, details: bool, output: Format, headers: bool) -> None:
    if output in {Format.JSON, Format.YAML}:
        emit(node_share_list(view), output)
    elif output is Format.NAME:
        names_only("node", (node.name for node in view.nodes))
    elif not view.nodes:
        note("no node offers shares of GPU memory (see 'gpushare doctor')")
    elif details:
        sys.stdout.write(sharenode.details(view))
    else:
        sys.stdout.write(sharenode.summary(view, headers=headers))
