"""``gpushare watch``: the table of ``inspect``, live and in place.

The lists are read again at an interval. Without a terminal the frames follow each other. An API
server that does not answer is said in the frame, and asked again.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer

from gpuinspect import state
from gpuinspect.cli import terminal
from gpuinspect.cli.reading import Reader, fail, reading
from gpuinspect.collect import CONFIG_MAPS, live
from gpuinspect.errors import ClusterError
from gpuinspect.frames import BACK, OTHER_SCREEN, Frames
from gpuinspect.layout.details import details as detail_text
from gpuinspect.layout.notes import notes
from gpuinspect.layout.summary import summary
from gpuinspect.views import ClusterView


@reading
def watch(
    reader: Reader,
    node: Annotated[str, typer.Argument(help="only this node", metavar="NODE")] = "",
    *,
    details: Annotated[bool, typer.Option("-d", "--details", help="a line for every pod")] = False,
    interval: Annotated[float, typer.Option(help="seconds between two frames", min=0.1)] = 2.0,
    count: Annotated[int, typer.Option(help="how many frames; 0 is until Ctrl-C", min=0)] = 0,
) -> None:
    """Show GPU memory that is allocated, again and again; changed lines are marked with *."""
    if reader.source.snapshot is not None:
        fail("a snapshot does not change: use inspect")
    texts = _texts(reader, node, details=details)
    with _screen() as show:
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
            snapshot = live(kube, [CONFIG_MAPS], cached=True)
        except ClusterError as error:
            yield f"{now}  {error}; shown is what was last known\n{last}"
            continue
        last = _text(
            state.shares(snapshot, reader.names, only=[node] if node else []), details=details
        )
        yield f"{now}\n{last}"


def _text(view: ClusterView, *, details: bool) -> str:
    if not view.nodes:
        return "no node offers shares of GPU memory\n"
    table = detail_text(view) if details else summary(view)
    return table + "".join(f"note: {sentence}\n" for sentence in notes(view))


class _Show:
    """Prints a text, over the one before where a terminal can."""

    def __init__(self, frames: Frames | None) -> None:
        self._frames = frames

    def __call__(self, text: str) -> None:
        sys.stdout.write(f"{text}\n" if self._frames is None else self._frames.draw(text))
        sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[_Show]:
    """The terminal's other screen while it lasts; Ctrl-C ends it like anything else."""
    if not sys.stdout.isatty():
        yield _Show(None)
        return
    sys.stdout.write(OTHER_SCREEN)
    try:
        yield _Show(Frames(shutil.get_terminal_size, bold=terminal.colourful()))
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(BACK)
