"""``gpushare watch``: the table of ``inspect``, live and in place.

The lists are read again at an interval. Without a terminal the frames follow each other. The frame
shows when the API server does not respond, and the command retries; missing rights end the command.
"""

from collections.abc import Iterable
from typing import Annotated

import typer

from gpuinspect.cluster.collect import COUNTED, live
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.commands.options.amounts import Count, Interval
from gpuinspect.commands.options.namespaces import EveryNamespace, OwnNamespace, named_namespace
from gpuinspect.commands.options.reading import Reader, fail, reading
from gpuinspect.commands.options.refreshing import refresh_in_place, time_of_day
from gpuinspect.commands.options.selecting import OnlyNode, Selector, selected
from gpuinspect.layout.shares import details as detail_text
from gpuinspect.layout.shares import notes, summary
from gpuinspect.queries.shares import cluster_view
from gpuinspect.queries.views import ClusterView, of_namespace


@reading
def watch(
    reader: Reader,
    node: OnlyNode = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="a line for every pod")] = False,
    namespace: OwnNamespace = "",
    all_namespaces: EveryNamespace = False,
    selector: Selector = "",
    interval: Interval = 2.0,
    count: Count = 0,
) -> None:
    """Show allocated GPU memory and refresh it; changed lines are marked with *."""
    if reader.source.snapshot is not None:
        fail("a snapshot does not change: use inspect")
    only = named_namespace(namespace, everywhere=all_namespaces)
    kube = reader.source.connect()

    def text() -> str:
        snapshot = live(kube, COUNTED, cached=True)
        nodes = selected(snapshot, selector)
        view = of_namespace(cluster_view(nodes, reader.names, only=[node] if node else []), only)
        return f"{time_of_day()}\n{_text(view, gaps(snapshot, NO_CLAIMS), details=details)}"

    refresh_in_place(text, interval=interval, count=count)


def _text(view: ClusterView, unread: Iterable[str], *, details: bool) -> str:
    table = detail_text(view) if details else summary(view)
    shown = table if view.nodes else "no node offers shares of GPU memory\n"
    return shown + "".join(f"note: {sentence}\n" for sentence in (*notes(view), *unread))
