"""``gpushare doctor``: is the installation in order, and if not, what to do."""

import sys
from typing import Annotated, Final

import typer

from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, reading
from gpuinspect.doctor.checks import CheckStatus, examine
from gpuinspect.doctor.evidence import Evidence
from gpuinspect.doctor.registry import CHECKS, WANTED
from gpuinspect.documents.doctor import examination_doc
from gpuinspect.layout.examination import examination, wide
from gpuinspect.terminal import output as terminal

_COLOURS: Final = {
    CheckStatus.OK: "green",
    CheckStatus.WARN: "yellow",
    CheckStatus.FAIL: "red",
    CheckStatus.SKIP: "bright_black",
}


@reading
def doctor(
    reader: Reader,
    *,
    every: Annotated[
        bool, typer.Option("-a", "--all", help="also the checks that passed or were skipped")
    ] = False,
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Check the installation; exit code 1 when a check fails (warnings do not count)."""
    results = examine(CHECKS, Evidence(reader.source.read(*WANTED), reader.names))
    if output.is_document:
        emit(examination_doc(results), output)
    elif output is Format.NAME:
        names_only("check", (r.check.name for r in results if r.verdict is CheckStatus.FAIL))
    elif output is Format.WIDE:
        sys.stdout.write(wide(results, headers=not no_headers))
    else:
        text = examination(results, every=every, paint=_paint, width=terminal.width())
        sys.stdout.write(text)
    if any(result.verdict is CheckStatus.FAIL for result in results):
        raise typer.Exit(1)


def _paint(word: str, verdict: CheckStatus) -> str:
    return typer.style(word, fg=_COLOURS[verdict]) if terminal.colourful() else word
