"""``kubectl inspect gpushare``: who sits on which card, and how full the cards are."""

import sys
from typing import Annotated

import msgspec
import typer

from gpuinspect import selectors, state
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit
from gpuinspect.cli.reading import Reader, fail, note, reading
from gpuinspect.documents import node_share_list
from gpuinspect.layout.details import details as detail_text
from gpuinspect.layout.notes import notes
from gpuinspect.layout.summary import summary
from gpuinspect.layout.wide import wide
from gpuinspect.snapshots import Snapshot
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
    selector: Annotated[str, typer.Option("-l", "--selector", help="only nodes so labelled")] = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show GPU memory that is allocated, card by card, on the nodes that share their cards."""
    snapshot = _selected(reader.source.read("ConfigMap"), selector)
    view = state.shares(snapshot, reader.names, node=node)
    if namespace and not all_namespaces:
        view = _only(view, namespace)
    if output in {Format.JSON, Format.YAML}:
        emit(node_share_list(view), output)
    elif output is Format.NAME:
        sys.stdout.writelines(f"node/{each.name}\n" for each in view.nodes)
    else:
        _print(view, details=details, wide_form=output is Format.WIDE, headers=not no_headers)


def _selected(snapshot: Snapshot, selector: str) -> Snapshot:
    try:
        matches = selectors.parse(selector)
    except selectors.SelectorError as error:
        fail(error)
    nodes = tuple(node for node in snapshot.nodes if matches(node.labels))
    return msgspec.structs.replace(snapshot, nodes=nodes)


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
    for sentence in notes(view):
        note(f"note: {sentence}")
