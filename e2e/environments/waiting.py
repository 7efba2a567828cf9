"""Waiting, as cases have it: the helper of :mod:`host.waiting` with one long deadline for all."""

from collections.abc import Callable
from typing import Final, TypeVar

from host import waiting
from host.waiting import DeadlineError

__all__ = ["PATIENCE_SECONDS", "DeadlineError", "until"]
Value = TypeVar("Value")

PATIENCE_SECONDS: Final = 300
"""For what usually takes seconds: only a case that fails waits so long, and none that is slow."""


def until(
    what: str, probe: Callable[[], Value | None], *, seconds: float = PATIENCE_SECONDS
) -> Value:
    """The first true result of ``probe``, called again until ``seconds`` have passed.

    Raises:
        DeadlineError: there was none; names ``what`` and the last result.
    """
    return waiting.until(what, probe, seconds=seconds)
