"""``gpushare top node``: arena's view of the cards of a cluster."""

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from gpuinspect import state
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.cli.reading import Reader, fail, note, reading
from gpuinspect.cli.selecting import Selector, selected
from gpuinspect.collect import CONFIG_MAPS
from gpuinspect.documents import node_share_list
from gpuinspect.layout import sharenode, topnode
from gpuinspect.prometheus import gpu_figures
from gpuinspect.topdocuments import node_gpu_list
from gpuinspect.topnodes import KINDS, TopNode, top_nodes, with_figures
from gpuinspect.views import ClusterView

REFRESH_SECONDS: Final = 2.0
TIME: Final = "%Y-%m-%d %H:%M:%S"
RULE: Final = f"{'-' * 25} {{}} {'-' * 37}\n"
NO_PROMETHEUS: Final = (
    "--metric needs the address of a Prometheus that scrapes the device plugin: give "
    "--prometheus URL or set GPUSHARE_PROMETHEUS"
)

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def top() -> None:
    """Show how the cards of a cluster are used."""


@app.command("node")
@reading
def top_node(
    reader: Reader,
    nodes: Annotated[
        list[str] | None, typer.Argument(help="only these nodes", metavar="[NODE]...")
    ] = None,
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="with pods")] = False,
    share: Annotated[
        bool, typer.Option("-s", "--share", help="only nodes that share, in units of memory")
    ] = False,
    gpu_mode: Annotated[
        str,
        typer.Option(
            "-m", "--gpu-mode", help=f"only nodes of a kind: {', '.join(KINDS)}", metavar="KIND"
        ),
    ] = "",
    refresh: Annotated[
        bool, typer.Option("-r", "--refresh", help="with -d and one node: every 2 seconds anew")
    ] = False,
    metric: Annotated[
        bool,
        typer.Option(
            "--metric",
            help="as -d, with memory in use and utilization of each GPU, from Prometheus",
        ),
    ] = False,
    prometheus: Annotated[
        str,
        typer.Option(
            envvar="GPUSHARE_PROMETHEUS",
            help="address of Prometheus for --metric, such as http://localhost:9090",
            metavar="URL",
        ),
    ] = "",
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show cards there are and cards in use, node by node; shares count as fractions of cards."""
    only, kind = nodes or [], _kind(gpu_mode)
    details = details or metric
    if metric and share:
        raise typer.BadParameter("--metric and --share cannot be combined")
    if metric and not prometheus:
        fail(NO_PROMETHEUS)
    if refresh and details and len(only) != 1:
        fail("must specify only one node name when '-r' is enabled")
    while True:
        snapshot = selected(reader.source.read(CONFIG_MAPS), selector)
        if share:
            view = state.shares(snapshot, reader.names, only=only)
            _shares(view, details=details, output=output, headers=not no_headers)
        else:
            found = top_nodes(snapshot, reader.names, only=only, kind=kind)
            if metric:
                found = with_figures(found, gpu_figures(prometheus))
            _cards(found, details=details, output=output, headers=not no_headers, metric=metric)
        if not (refresh and details):
            return
        sys.stdout.write(RULE.format(datetime.now(UTC).astimezone().strftime(TIME)))
        sys.stdout.flush()
        time.sleep(REFRESH_SECONDS)


def _kind(text: str) -> str:
    """A kind, or the letter that it begins with."""
    found = {name: kind for kind in KINDS for name in (kind, kind[0])}
    if text and text not in found:
        raise typer.BadParameter(f"unknown node type, only supports: {', '.join(KINDS)}")
    return found.get(text, "")


def _cards(
    nodes: Sequence[TopNode], *, details: bool, output: Format, headers: bool, metric: bool
) -> None:
    if output in {Format.JSON, Format.YAML}:
        emit(node_gpu_list(nodes, metric=metric), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in nodes))
    elif details:
        sys.stdout.write(topnode.details(nodes, metric=metric))
    else:
        sys.stdout.write(topnode.summary(nodes, headers=headers))


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
