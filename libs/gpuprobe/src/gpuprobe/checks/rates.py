"""The speed of a pod that works and reports every half second (command ``watch``)."""

import itertools
from collections.abc import Sequence

from gpuprobe.checks.answers import MissingAnswerError, value
from gpuprobe.checks.verdicts import Answer


def stints(answers: Sequence[Answer]) -> list[Answer]:
    """The reports so far."""
    return [answer for answer in answers if answer.get("do") == "stint"]


def begun(answers: Sequence[Answer], who: str) -> list[Answer]:
    """The reports so far, of which there must be one.

    Raises:
        MissingAnswerError: there is none.
    """
    found = stints(answers)
    if not found:
        for each in answers:
            value(each)
        raise MissingAnswerError(f"{who} did not begin to work")
    return found


def rate(reports: Sequence[Answer], start: float, end: float, of: str = "requests") -> float:
    """Median rate, in 1/s, between two Unix times; without a report of then, 0.

    A report counts by its part in between: on a busy host it may take longer than the phase.

    Args:
        of: the figure in the reports: ``requests`` or ``operations``.
    """
    rates = sorted(
        (each["ok"][of] / each["ok"]["seconds"], within)
        for each in reports
        if "ok" in each and (within := min(each["to"], end) - max(each["from"], start)) > 0
    )
    half = sum(within for _, within in rates) / 2
    sums = itertools.accumulate(within for _, within in rates)
    return next((each for (each, _), sum_ in zip(rates, sums, strict=True) if sum_ >= half), 0.0)
