"""``gpushare watch``: the table of ``inspect``, live and in place.

The lists are read again at an interval. Without a terminal the frames follow each other. The frame
shows when the API server does not respond, and the command retries; missing rights end the command.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from gpuinspect.cluster.collect import COUNTED, live
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.reading import Reader, fail, reading
from gpuinspect.errors import sentence
from gpuinspect.layout.notes import notes
from gpuinspect.layout.shares import details as detail_text
from gpuinspect.layout.shares import summary
from gpuinspect.queries.shares import cluster_view
from gpuinspect.queries.views import ClusterView
from gpuinspect.terminal.screens import screen
from gpukube.errors import ForbiddenError, KubeError


@reading
def watch(
    reader: Reader,
    node: Annotated[
        str, typer.Argument(help="only this node", metavar="NODE", autocompletion=answers.nodes)
    ] = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="a line for every pod")] = False,
    interval: Annotated[float, typer.Option(help="seconds between two updates", min=0.1)] = 2.0,
    count: Annotated[int, typer.Option(help="number of updates; 0: until Ctrl-C", min=0)] = 0,
) -> None:
    """Show allocated GPU memory and refresh it; changed lines are marked with *."""
    if reader.source.snapshot is not None:
        fail("a snapshot does not change: use inspect")
    texts = _texts(reader, node, details=details)
    with screen() as show:
        for number, text in enumerate(texts, start=1):
            show(text)
            if number == count:
                return
            time.sleep(interval)


def _texts(reader: Reader, node: str, *, details: bool) -> Iterator[str]:
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
        last = _text(
            cluster_view(snapshot, reader.names, only=[node] if node else []), details=details
        )
        yield f"{now}\n{last}"


def _text(view: ClusterView, *, details: bool) -> str:
    if not view.nodes:
        return "no node offers shares of GPU memory\n"
    table = detail_text(view) if details else summary(view)
    return table + "".join(f"note: {sentence}\n" for sentence in notes(view))
