"""``kubectl inspect gpushare``: who sits on which card, and how full the cards are."""

import sys
from typing import Annotated

import msgspec
import typer

from gpuinspect import state
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.cli.reading import Reader, note, reading
from gpuinspect.cli.selecting import Selector, selected
from gpuinspect.collect import CONFIG_MAPS
from gpuinspect.documents import node_share_list
from gpuinspect.layout.details import details as detail_text
from gpuinspect.layout.notes import notes
from gpuinspect.layout.summary import summary
from gpuinspect.layout.wide import wide
from gpuinspect.views import ClusterView


@reading
def inspect(
    reader: Reader,
    node: Annotated[str, typer.Argument(help="only this node", metavar="NODE")] = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="a line for every pod")] = False,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="only pods of this namespace, with -d")
    ] = "",
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="pods of all namespaces (default)")
    ] = False,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show GPU memory that is allocated, card by card, on the nodes that share their cards."""
    snapshot = selected(reader.source.read(CONFIG_MAPS), selector)
    everything = state.shares(snapshot, reader.names, only=[node] if node else [])
    view = _only(everything, namespace) if namespace and not all_namespaces else everything
    if output in {Format.JSON, Format.YAML}:
        emit(node_share_list(view), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in view.nodes))
    else:
        _print(view, details=details, wide_form=output is Format.WIDE, headers=not no_headers)
        for sentence in notes(everything):
            note(f"note: {sentence}")


def _only(view: ClusterView, namespace: str) -> ClusterView:
    """The rows of one namespace; the sums stay those of the node."""
    return msgspec.structs.replace(
        view,
        nodes=tuple(
            msgspec.structs.replace(
                node, pods=tuple(pod for pod in node.pods if pod.namespace == namespace)
            )
            for node in view.nodes
        ),
    )


def _print(view: ClusterView, *, details: bool, wide_form: bool, headers: bool) -> None:
    if not view.nodes:
        note("no node offers shares of GPU memory (see 'gpushare doctor')")
        return
    if details:
        sys.stdout.write(detail_text(view))
    elif wide_form:
        sys.stdout.write(wide(view, headers=headers))
    else:
        sys.stdout.write(summary(view, headers=headers))
    sys.stdout.flush()
