"""A fake clock for one event loop: time passes only while every task waits, and then at once."""

from typing import Any

START_SECONDS = 1_000.0


class FakeClock:
    """Replaces the time of the running loop; timers fire in order without any wait.

    A loop in which every task waits for something other than a timer fails the test.

    Attributes:
        seconds: the time, which code under test reads as ``monotonic`` or as Unix time.
    """

    def __init__(self, loop: Any) -> None:
        self.seconds = START_SECONDS
        self._loop = loop
        self._selector = self._loop._selector  # noqa: SLF001 - no public way to skip a wait
        self._select = self._selector.select
        self._loop.time = self.now
        self._selector.select = self._skip

    def now(self) -> float:
        """Seconds, like ``time.monotonic``."""
        return self.seconds

    def now_ns(self) -> int:
        """Nanoseconds, as ``time.time_ns`` has them."""
        return round(self.seconds * 1_000_000_000)

    def restore(self) -> None:
        """Give the loop its own time back."""
        del self._loop.time
        del self._selector.select

    def _skip(self, timeout: float | None) -> Any:
        ready = self._select(0)
        if not ready and timeout is None:
            raise AssertionError("every task waits, and no timer will wake one")
        if not ready and timeout:
            self.seconds += timeout
        return ready
