"""``gpushare doctor``: is the installation in order, and if not, what to do."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, reading
from gpuinspect.doctor.checks import CheckStatus, Result, examine
from gpuinspect.doctor.evidence import Evidence
from gpuinspect.doctor.registry import CHECKS, WANTED
from gpuinspect.documents.doctor import examination_doc
from gpuinspect.terminal import output as terminal
from gpuinspect.terminal.output import table, wrapped

_COLOURS: Final = {
    CheckStatus.OK: "green",
    CheckStatus.WARN: "yellow",
    CheckStatus.FAIL: "red",
    CheckStatus.SKIP: "bright_black",
}
SHOWN: Final = 10
_WORDS: Final = {
    CheckStatus.OK: "ok",
    CheckStatus.WARN: "WARN",
    CheckStatus.FAIL: "FAIL",
    CheckStatus.SKIP: "skip",
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
        sys.stdout.write(_wide(results, headers=not no_headers))
    else:
        sys.stdout.write(_examination(results, every=every, width=terminal.width()))
    if any(result.verdict is CheckStatus.FAIL for result in results):
        raise typer.Exit(1)


def _painted(word: str, verdict: CheckStatus) -> str:
    """The word is complete without colour."""
    return typer.style(word, fg=_COLOURS[verdict]) if terminal.colourful() else word


def _examination(results: Sequence[Result], *, every: bool, width: int | None) -> str:
    """A line a check with its findings below, what to do, and the count at the end.

    Args:
        every: show those that passed or were skipped too.
        width: of the terminal, for sentences; ``None`` does not wrap.
    """
    shown = [r for r in results if every or r.verdict in {CheckStatus.FAIL, CheckStatus.WARN}]
    lines = "".join(line for result in shown for line in _lines(result, width))
    return lines + _count(results)


def _lines(result: Result, width: int | None) -> Iterator[str]:
    check = result.check
    word = _painted(f"{_WORDS[result.verdict]:<4}", result.verdict)
    yield f"{word}  {check.name}: {check.title}\n"
    for finding in result.findings[:SHOWN]:
        yield wrapped(f"      - {finding}", width, indent=8)
    if len(result.findings) > SHOWN:
        yield f"      - and {len(result.findings) - SHOWN} more (all of them with -o json)\n"
    if result.verdict in {CheckStatus.FAIL, CheckStatus.WARN}:
        yield wrapped(f"      do: {check.remedy}", width, indent=10)


def _count(results: Sequence[Result]) -> str:
    counts = Counter(result.verdict for result in results)
    parts = [f"{counts[verdict]} {_WORDS[verdict]}" for verdict in CheckStatus if counts[verdict]]
    return f"{len(results)} checks: {', '.join(parts)}\n"


def _wide(results: Sequence[Result], *, headers: bool) -> str:
    """One line a check, for scripts that cut columns."""
    rows = ((r.check.name, _WORDS[r.verdict], str(len(r.findings)), r.check.title) for r in results)
    return table(("CHECK", "RESULT", "FINDINGS", "TITLE"), rows, headers=headers)
