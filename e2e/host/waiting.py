"""Waiting for a state of the world: always with a deadline, always with a sentence on failure."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

POLL_SECONDS = 0.25


class DeadlineError(AssertionError):
    """What was waited for did not come in time."""


def until(what: str, probe: Callable[[], Value | None], *, seconds: float) -> Value:
    """The first true result of ``probe``, called again until ``seconds`` have passed.

    Raises:
        DeadlineError: none came; names ``what`` and the last result.
    """
    end = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise DeadlineError(f"not within {seconds:g} s: {what} (last answer: {answer!r})")
        time.sleep(POLL_SECONDS)
