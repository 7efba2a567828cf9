"""``gpushare inspect`` and ``kubectl inspect gpushare``: allocated memory of each GPU.

``kubectl inspect gpushare`` always prints the original's table, and so does ``gpushare inspect``
into a pipe or a file. On a terminal ``gpushare inspect`` prints a layout that fits its width.
"""

import sys
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.cluster.snapshots import uncollected_for_good
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.namespaces import EveryNamespace, OwnNamespace, named_namespace
from gpuinspect.commands.options.reading import Reader, note, note_all, reading
from gpuinspect.commands.options.selecting import OnlyNode, Selector, selected
from gpuinspect.documents.inspect import node_share_list
from gpuinspect.layout.fitted import fitted
from gpuinspect.layout.shares import details as detail_text
from gpuinspect.layout.shares import notes, summary, wide
from gpuinspect.queries.views import ClusterView, of_namespace
from gpuinspect.terminal import output as terminal

OWN_NAME: Final = "gpushare"
"""Program under which the layout fits the terminal."""


class Order(StrEnum):
    """Values of ``--sort-by``."""

    NAME = "name"
    FREE = "free"
    USED = "used"


@reading
def inspect(
    reader: Reader,
    ctx: typer.Context,
    node: OnlyNode = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="a line for every pod")] = False,
    namespace: OwnNamespace = "",
    all_namespaces: EveryNamespace = False,
    selector: Selector = "",
    sort_by: Annotated[
        Order, typer.Option(help="order of the nodes; free, used: highest part of the memory first")
    ] = Order.NAME,
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show allocated GPU memory of every GPU on nodes that share GPUs."""
    only_pods = named_namespace(namespace, everywhere=all_namespaces)
    own = ctx.find_root().info_name == OWN_NAME and not no_headers
    columns = terminal.width() if own else None
    named = details or columns is not None or output.is_document
    only = [node] if node else []
    with uncollected_for_good(), reader.source.arriving(*COUNTED) as found:
        from gpuinspect.queries.shares import cluster_view  # noqa: PLC0415 - while the API server answers

        cluster = selected(found, selector)
        whole = cluster_view(cluster, reader.names, only=only, every_pod=named)
    everything = _sorted(whole, sort_by)
    view = of_namespace(everything, only_pods)
    if output.is_document:
        emit(node_share_list(view), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in view.nodes))
    else:
        wide_form = output is Format.WIDE
        _print(view, columns, details=details, wide_form=wide_form, headers=not no_headers)
        note_all(notes(everything))
    note_all(gaps(cluster, NO_CLAIMS))


def _sorted(view: ClusterView, order: Order) -> ClusterView:
    """The nodes in this order; equal ones by name."""
    if order is Order.NAME:
        return view
    sign = 1 if order is Order.FREE else -1
    nodes = sorted(view.nodes, key=lambda n: (sign * n.used / max(n.total, 1), n.name))
    return msgspec.structs.replace(view, nodes=tuple(nodes))


def _print(
    view: ClusterView, columns: int | None, *, details: bool, wide_form: bool, headers: bool
) -> None:
    if not view.nodes:
        note("no node offers shares of GPU memory (see 'gpushare doctor')")
        return
    if details:
        sys.stdout.write(detail_text(view))
    elif wide_form:
        sys.stdout.write(wide(view, headers=headers))
    elif columns is not None:
        sys.stdout.write(fitted(view, columns, blocks=terminal.shows("█░")))
    else:
        sys.stdout.write(summary(view, headers=headers))
    sys.stdout.flush()
