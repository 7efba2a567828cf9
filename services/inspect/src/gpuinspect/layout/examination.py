"""The answer of ``gpushare doctor`` for people."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpuinspect.doctor.checks import Result, Verdict
from gpuinspect.tables import align

SHOWN: Final = 10
Paint = Callable[[str, Verdict], str]
_WORDS: Final = {
    Verdict.OK: "ok",
    Verdict.WARN: "WARN",
    Verdict.FAIL: "FAIL",
    Verdict.SKIP: "skip",
}


def examination(results: Sequence[Result], *, every: bool, paint: Paint) -> str:
    """A line a check with its findings below, what to do, and the count at the end.

    Args:
        results: of all checks.
        every: show those that passed or were skipped too.
        paint: colours a word; the word alone says everything.
    """
    shown = [r for r in results if every or r.verdict in {Verdict.FAIL, Verdict.WARN}]
    return "".join(line for result in shown for line in _lines(result, paint)) + _count(results)


def _lines(result: Result, paint: Paint) -> Iterator[str]:
    check = result.check
    word = paint(f"{_WORDS[result.verdict]:<4}", result.verdict)
    yield f"{word}  {check.name}: {check.title}\n"
    yield from (f"      - {finding}\n" for finding in result.findings[:SHOWN])
    if len(result.findings) > SHOWN:
        yield f"      - and {len(result.findings) - SHOWN} more (all of them with -o json)\n"
    if result.verdict in {Verdict.FAIL, Verdict.WARN}:
        yield f"      do: {check.remedy}\n"


def _count(results: Sequence[Result]) -> str:
    counts = Counter(result.verdict for result in results)
    parts = [f"{counts[verdict]} {_WORDS[verdict]}" for verdict in Verdict if counts[verdict]]
    return f"{len(results)} checks: {', '.join(parts)}\n"


def wide(results: Sequence[Result], *, headers: bool) -> str:
    """One line a check, for scripts that cut columns."""
    head = "CHECK\tRESULT\tFINDINGS\tTITLE\n" if headers else ""
    rows = (
        f"{r.check.name}\t{_WORDS[r.verdict]}\t{len(r.findings)}\t{r.check.title}\n"
        for r in results
    )
    return align(head + "".join(rows))
