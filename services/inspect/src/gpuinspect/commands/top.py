"""``gpushare top node``, arena's view of a cluster, and ``top gpu`` with memory in use."""

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final

import typer

from gpucore.wire.names import Names
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.amounts import Count, Interval
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.measuring import Prometheus, measured
from gpuinspect.commands.options.reading import Reader, fail, note, note_all, reading
from gpuinspect.commands.options.refreshing import Reads, refresh_in_place
from gpuinspect.commands.options.selecting import OnlyNodes, Selector, selected
from gpuinspect.documents.inspect import node_share_list
from gpuinspect.documents.top import node_gpu_list
from gpuinspect.layout import shares, topnode
from gpuinspect.queries.shares import cluster_view
from gpuinspect.queries.top import (
    KINDS,
    NVIDIA_GPU,
    TopGpu,
    TopNode,
    refuse_two_kinds,
    top_nodes,
    with_figures,
)
from gpuinspect.queries.views import ClusterView
from gpuinspect.sources.prometheus import GpuFigures, gpu_figures, pod_figures
from gpuinspect.terminal.output import one_line

REFRESH_SECONDS: Final = 2.0
TIME: Final = "%Y-%m-%d %H:%M:%S"
RULE: Final = f"{'-' * 25} {{}} {'-' * 37}\n"
NO_PROMETHEUS: Final = (
    "--metric needs a cluster, or the address of a Prometheus that scrapes the device plugin: give "
    "--prometheus URL or set GPUSHARE_PROMETHEUS"
)

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def top() -> None:
    """Show how the GPUs of a cluster are used."""


@app.command("node")
@reading
def top_node(
    reader: Reader,
    nodes: OnlyNodes = None,
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="with pods")] = False,
    share: Annotated[
        bool,
        typer.Option(
            "-s", "--share", help="only nodes that share GPUs, with memory in place of GPUs"
        ),
    ] = False,
    gpu_mode: Annotated[
        str,
        typer.Option(
            "-m",
            "--gpu-mode",
            help=f"only nodes of a kind: {', '.join(KINDS)}",
            metavar="KIND",
            autocompletion=answers.one_of(KINDS),
        ),
    ] = "",
    refresh: Annotated[
        bool, typer.Option("-r", "--refresh", help="with -d and one node: refresh every 2 seconds")
    ] = False,
    metric: Annotated[
        bool,
        typer.Option(
            "--metric",
            help="as -d, with memory in use of each GPU, and its utilization from Prometheus",
        ),
    ] = False,
    prometheus: Prometheus = "",
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show the number of GPUs and of GPUs in use of every node; shares count as fractions."""
    only, kind = nodes or [], _kind(gpu_mode)
    details = details or metric
    if metric and share:
        raise typer.BadParameter("--metric and --share cannot be combined")
    if metric and not prometheus and reader.source.snapshot is not None:
        fail(NO_PROMETHEUS)
    if refresh and details and len(only) != 1:
        fail("must specify only one node name when '-r' is enabled")

    def show() -> None:
        snapshot = selected(reader.source.read(*COUNTED), selector)
        if share:
            view = cluster_view(snapshot, reader.names, only=only)
            _shares(view, details=details, output=output, headers=not no_headers)
        else:
            found, missing = top_nodes(snapshot, reader.names, only=only, kind=kind), ""
            refuse_two_kinds(found, reader.names)
            if metric:
                found, missing = _with_use(reader, snapshot, found, prometheus)
            _gpus(found, details=details, output=output, headers=not no_headers, metric=metric)
            if missing:
                note(f"note: {missing}")
        note_all(gaps(snapshot, NO_CLAIMS))

    if not (refresh and details):
        show()
        return
    reads = Reads()
    while True:
        note_all(filter(None, [reads.failure(show)]))
        sys.stdout.write(RULE.format(datetime.now(UTC).astimezone().strftime(TIME)))
        sys.stdout.flush()
        time.sleep(REFRESH_SECONDS)


class GpuOrder(StrEnum):
    """Values of ``--sort-by``."""

    NODE = "node"
    USED = "used"
    ALLOCATED = "allocated"


@app.command("gpu")
@reading
def top_gpu(
    reader: Reader,
    nodes: OnlyNodes = None,
    *,
    prometheus: Prometheus = "",
    sort_by: Annotated[
        GpuOrder, typer.Option(help="order of the GPUs; amounts: largest first")
    ] = GpuOrder.NODE,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="refresh in place until Ctrl-C")
    ] = False,
    interval: Interval = 2.0,
    count: Count = 0,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show memory allocated and in use of every GPU, as the device plugins report it.

    TOTAL(NVML) is all memory of the GPU; inspect shows what of it can be allocated:
    whole GiB (or MiB), less what the driver reserves.
    """
    if watch and (output.is_document or output is Format.NAME):
        raise typer.BadParameter(f"--watch refreshes a table: it takes no -o {output}")

    def found() -> tuple[Sequence[TopNode], list[str]]:
        snapshot = selected(reader.source.read(*COUNTED), selector)
        every = top_nodes(snapshot, reader.names, only=nodes or [], kind="")
        with_gpus = [node for node in every if node.gpus]
        shown, missing = _with_use(reader, snapshot, with_gpus, prometheus)
        unread = [*([missing] if missing else []), *gaps(snapshot, NO_CLAIMS)]
        return shown, [*_offered_twice(shown, reader.names), *unread]

    def table() -> tuple[str, list[str]]:
        shown, remarks = found()
        return topnode.gpus(_ordered(shown, sort_by), headers=not no_headers), remarks

    if output.is_document or output is Format.NAME:
        shown, remarks = found()
        _gpus(shown, details=True, output=output, headers=not no_headers, metric=True)
        note_all(remarks)
        return
    if not watch:
        text, remarks = table()
        sys.stdout.write(text)
        note_all(remarks)
        return

    def noted() -> str:
        text, remarks = table()
        return text + "".join(f"note: {one_line(each)}\n" for each in remarks)

    refresh_in_place(noted, interval=interval, count=count)


def _with_use(
    reader: Reader, snapshot: Snapshot, nodes: Sequence[TopNode], prometheus: str
) -> tuple[tuple[TopNode, ...], str]:
    """The nodes with memory in use, and why it is not all known."""
    if prometheus:
        return with_figures(nodes, gpu_figures(prometheus), pod_figures(prometheus)), ""
    found = measured(reader, snapshot)
    figures = GpuFigures(used_bytes=found.known.gpus, utilization={})
    return with_figures(nodes, figures, found.known.pods), found.note


def _offered_twice(nodes: Sequence[TopNode], names: Names) -> list[str]:
    """A sentence for each node that offers its GPUs twice."""
    return [
        f"{node.name} offers {NVIDIA_GPU} and {names.gpu_mem} of the same GPUs: remove NVIDIA's "
        "device plugin or the label gpushare from the node"
        for node in nodes
        if node.offered_twice
    ]


def _ordered(nodes: Sequence[TopNode], order: GpuOrder) -> list[tuple[TopNode, TopGpu]]:
    pairs = [(node, gpu) for node in nodes for gpu in node.gpus]
    if order is GpuOrder.USED:
        pairs.sort(key=lambda pair: -(pair[1].used_bytes or 0))
    elif order is GpuOrder.ALLOCATED:
        pairs.sort(key=lambda pair: -pair[1].allocated_bytes)
    return pairs


def _kind(text: str) -> str:
    """A kind, or the letter that it begins with."""
    found = {name: kind for kind in KINDS for name in (kind, kind[0])}
    if text and text not in found:
        raise typer.BadParameter(f"unknown node type, only supports: {', '.join(KINDS)}")
    return found.get(text, "")


def _gpus(
    nodes: Sequence[TopNode], *, details: bool, output: Format, headers: bool, metric: bool
) -> None:
    if output.is_document:
        emit(node_gpu_list(nodes, metric=metric), output)
    elif output is Format.NAME:
        names_only("node", (each.name for each in nodes))
    elif details:
        sys.stdout.write(topnode.details(nodes, metric=metric))
    else:
        sys.stdout.write(topnode.summary(nodes, headers=headers))


def _shares(view: ClusterView, *, details: bool, output: Format, headers: bool) -> None:
    if output.is_document:
        emit(node_share_list(view), output)
    elif output is Format.NAME:
        names_only("node", (node.name for node in view.nodes))
    elif not view.nodes:
        note("no node offers shares of GPU memory (see 'gpushare doctor')")
    elif details:
        sys.stdout.write(shares.top_details(view))
    else:
        sys.stdout.write(shares.top_summary(view, headers=headers))
