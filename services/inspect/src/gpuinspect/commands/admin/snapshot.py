"""``gpushare snapshot``: a file for ``--snapshot``, to look at a cluster elsewhere or later."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuinspect.cluster.collect import FAILED_SCHEDULING
from gpuinspect.cluster.dump import dump
from gpuinspect.commands.options.reading import Reader, fail, note, reading
from gpuinspect.doctor.registry import WANTED
from gpuinspect.terminal.progress import counting, shown


@reading
def snapshot(
    reader: Reader,
    file: Annotated[Path, typer.Argument(help="output file; - is standard output", metavar="FILE")],
) -> None:
    """Write nodes, pods and the inputs of doctor to one file; environment values are omitted."""
    with shown("objects read") as progress:
        found = reader.source.read(*WANTED, FAILED_SCHEDULING, count=progress.add)
    raw = dump(found, counting("objects written"))
    if file == Path("-"):
        sys.stdout.buffer.write(raw)
    else:
        try:
            file.write_bytes(raw)
        except OSError as error:
            fail(f"cannot write {file}: {error.strerror}")
    for kind, reason in found.missing.items():
        note(f"note: without {kind}: {reason}")
    note(f"{len(found.nodes)} nodes and {len(found.pods)} pods, {len(raw)} bytes")
