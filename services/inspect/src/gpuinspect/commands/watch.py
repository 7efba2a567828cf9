"""``gpushare watch``: the table of ``inspect``, live and in place.

The lists are read again at an interval. Without a terminal the frames follow each other. The frame
shows when the API server does not respond, and the command retries; missing rights end the command.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from gpucore.wire.names import Names
from gpuinspect.cluster.collect import COUNTED, live
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.commands.options.amounts import Interval
from gpuinspect.commands.options.namespaces import EveryNamespace, OwnNamespace, named_namespace
from gpuinspect.commands.options.reading import Reader, fail, reading
from gpuinspect.commands.options.selecting import OnlyNode, Selector, selected
from gpuinspect.errors import sentence
from gpuinspect.layout.shares import details as detail_text
from gpuinspect.layout.shares import notes, summary
from gpuinspect.queries.shares import cluster_view
from gpuinspect.queries.views import ClusterView, of_namespace
from gpuinspect.terminal.screens import screen
from gpukube.errors import ForbiddenError, KubeError


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
    count: Annotated[int, typer.Option(help="number of updates; 0: until Ctrl-C", min=0)] = 0,
) -> None:
    """Show allocated GPU memory and refresh it; changed lines are marked with *."""
    if reader.source.snapshot is not None:
        fail("a snapshot does not change: use inspect")
    only = named_namespace(namespace, everywhere=all_namespaces)
    cluster = partial(_shares, names=reader.names, only=[node] if node else [], selector=selector)
    texts = _texts(reader, lambda found: of_namespace(cluster(found), only), details=details)
    with screen() as show:
        for number, text in enumerate(texts, start=1):
            show(text)
            if number == count:
                return
            time.sleep(interval)


def _shares(found: Snapshot, *, names: Names, only: Sequence[str], selector: str) -> ClusterView:
    return cluster_view(selected(found, selector), names, only=only)


def _texts(
    reader: Reader, viewed: Callable[[Snapshot], ClusterView], *, details: bool
) -> Iterator[str]:
    kube = reader.source.connect()
    last = ""
    while True:
        now = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
        try:
            snapshot = live(kube, COUNTED, cached=True)
        except ForbiddenError:
            raise
        except KubeError as error:
            yield f"{now}  {sentence(error)}; showing the last known state\n{last}"
            continue
        last = _text(viewed(snapshot), gaps(snapshot, NO_CLAIMS), details=details)
        yield f"{now}\n{last}"


def _text(view: ClusterView, unread: Iterable[str], *, details: bool) -> str:
    table = detail_text(view) if details else summary(view)
    shown = table if view.nodes else "no node offers shares of GPU memory\n"
    return shown + "".join(f"note: {sentence}\n" for sentence in (*notes(view), *unread))
