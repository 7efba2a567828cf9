"""Reads that are repeated at an interval: a failed one ends no command, a missing right does."""

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime

from gpuinspect.errors import PrometheusError, sentence
from gpuinspect.terminal.output import one_line
from gpuinspect.terminal.screens import screen
from gpukube.errors import ForbiddenError, KubeError


def time_of_day() -> str:
    """The local time."""
    return datetime.now(UTC).astimezone().strftime("%H:%M:%S")


class Reads:
    """Reads that are repeated, and the time since which they fail."""

    def __init__(self) -> None:
        self._failing_since = ""

    def failure(self, read: Callable[[], None]) -> str:
        """Since when and why reads fail, after another one; empty where it succeeded.

        Raises:
            ForbiddenError: a right is missing.
        """
        try:
            read()
        except ForbiddenError:
            raise
        except (KubeError, PrometheusError) as error:
            self._failing_since = self._failing_since or time_of_day()
            return f"reads fail since {self._failing_since}: {one_line(sentence(error))}"
        self._failing_since = ""
        return ""


def refresh_in_place(read: Callable[[], str], *, interval: float, count: int) -> None:
    """Show the text of each read in place; while reads fail, the last text stays below the reason.

    Args:
        interval: seconds between two updates.
        count: number of updates; 0 for no end.

    Raises:
        ForbiddenError: a right is missing.
    """
    reads, last = Reads(), ""

    def update() -> None:
        nonlocal last
        last = read()

    with screen() as show:
        for number in itertools.count(1):
            reason = reads.failure(update)
            show(f"{reason}; showing the last known state\n{last}" if reason else last)
            if number == count:
                return
            time.sleep(interval)
