"""The last lines of `make test`: where the time went, what failed and why, what did not run."""

from collections.abc import Sequence
from pathlib import Path

from stages.runner import Result, log_file

_REASON_LINES = 12
_MARKS = ("FAILED ", "ERROR ")
"""How pytest begins the lines of its short summary."""


def table(results: Sequence[Result], skipped: Sequence[str]) -> str:
    """The stages in the order in which they ended, then those that did not run."""
    rows = [("STAGE", "TIME", "BUSY CORES", "OUTCOME")]
    rows += map(_row, results)
    rows += [(name, "-", "-", "not run") for name in skipped]
    width = max(len(name) for name, *_ in rows)
    return "\n".join(
        f"{name:{width}}  {time:>8}  {busy:>10}  {result}" for name, time, busy, result in rows
    )


def _row(result: Result) -> tuple[str, str, str, str]:
    return result.name, _clock(result.seconds), f"{result.busy:.1f}", outcome(result)


def outcome(result: Result) -> str:
    """In a word."""
    if result.interrupted:
        return "interrupted"
    return "FAILED" if result.status else "passed"


def reasons(failures: Sequence[Result], logs: Path) -> str:
    """Of each failure: the lines that name it, and where the whole output is."""
    return "\n".join(
        line
        for each in failures
        for line in (
            f"{each.name} failed (exit status {each.status}); output: {log_file(logs, each.name)}",
            *(f"  {reason}" for reason in reason_lines(each.lines)),
        )
    )


def reason_lines(lines: Sequence[str]) -> list[str]:
    """What the summary of pytest names as failed; the last lines where there is none."""
    summary = [line for line in lines if line.startswith(_MARKS)]
    told = [line for line in lines if line.strip() and not line.startswith("make")]
    return (summary or told)[-_REASON_LINES:]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}m {int(seconds) % 60:02}s"
