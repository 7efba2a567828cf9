"""A clock that a test turns, in place of that of one module."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest


class Clock:
    """Seconds of a steady clock, and who slept how long by it.

    Attributes:
        now: seconds.
        slept: every sleep, in order; a sleep passes at once.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """As ``asyncio.sleep``."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
        self.on_sleep()

    def rule(self, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
        """The module reads this clock, and sleeps by it."""
        own_time = SimpleNamespace(monotonic=self.monotonic)
        own_asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": self.sleep})
        monkeypatch.setattr(f"{module}.time", own_time, raising=False)
        monkeypatch.setattr(f"{module}.asyncio", own_asyncio)
