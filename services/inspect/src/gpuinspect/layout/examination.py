"""The answer of ``gpushare doctor`` for people."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpuinspect.doctor.checks import CheckStatus, Result
from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import wrapped

SHOWN: Final = 10
Paint = Callable[[str, CheckStatus], str]
_WORDS: Final = {
    CheckStatus.OK: "ok",
    CheckStatus.WARN: "WARN",
    CheckStatus.FAIL: "FAIL",
    CheckStatus.SKIP: "skip",
}


def examination(
    results: Sequence[Result], *, every: bool, paint: Paint, width: int | None = None
) -> str:
    """A line a check with its findings below, what to do, and the count at the end.

    Args:
        results: of all checks.
        every: show those that passed or were skipped too.
        paint: colours a word; the word is complete without colour.
        width: of the terminal, for sentences; ``None`` does not wrap.
    """
    shown = [r for r in results if every or r.verdict in {CheckStatus.FAIL, CheckStatus.WARN}]
    return "".join(line for result in shown for line in _lines(result, paint, width)) + _count(
        results
    )


def _lines(result: Result, paint: Paint, width: int | None) -> Iterator[str]:
    check = result.check
    word = paint(f"{_WORDS[result.verdict]:<4}", result.verdict)
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


def wide(results: Sequence[Result], *, headers: bool) -> str:
    """One line a check, for scripts that cut columns."""
    head = "CHECK\tRESULT\tFINDINGS\tTITLE\n" if headers else ""
    rows = (
        f"{r.check.name}\t{_WORDS[r.verdict]}\t{len(r.findings)}\t{r.check.title}\n"
        for r in results
    )
    return align(head + "".join(rows))
