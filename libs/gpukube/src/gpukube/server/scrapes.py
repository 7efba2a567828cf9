"""Renders metrics at most once a second for all scrapers.

All requests since the last rendering share the next one. Clients that scrape in a loop are
therefore limited to one reply a second, and a single Prometheus never waits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

EVERY_SECONDS: Final = 1.0
PIECE_BYTES: Final = 16 * 1024
MOST_TEXTS: Final = 4
"""Texts that are being sent at one time. That of a large cluster has 18 MB, and a client may take
its time: where so many are slow, others get the newest of these texts."""


class SharedScrape:
    """The newest text, at most once in a while.

    Args:
        every: seconds between two texts.
    """

    def __init__(
        self, render: Callable[[], Awaitable[bytes]], every: float = EVERY_SECONDS
    ) -> None:
        self._render, self._every = render, every
        self._last = float("-inf")
        self._sending: list[bytes] = []
        self._next: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """A text that was made after this call, unless too many are being sent."""
        if len(set(map(id, self._sending))) >= MOST_TEXTS:
            return self._sending[-1]
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._make())
        return await asyncio.shield(self._next)

    async def _make(self) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(max(0.0, self._last + self._every - loop.time()))
        finally:
            self._next = None  # later requests wait for the next rendering
        self._last = loop.time()
        return await self._render()

    async def pieces(self, text: bytes) -> AsyncIterator[bytes]:
        """The text in chunks, so that other requests run while it is encrypted and sent."""
        view = memoryview(text)
        self._sending.append(text)
        try:
            for start in range(0, len(text), PIECE_BYTES):
                yield bytes(view[start : start + PIECE_BYTES])
                await asyncio.sleep(0)
        finally:
            self._sending.remove(text)
