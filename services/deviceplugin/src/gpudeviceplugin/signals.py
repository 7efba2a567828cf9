"""Changes of the node's state, and waiting for them."""

import asyncio
from contextlib import suppress


class Signal:
    """Counts changes, and wakes those who wait for one beyond the count they have seen."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Count a change and wake all waiters."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def beyond(self, seen: int) -> None:
        """Wait for a change after the first ``seen`` changes."""
        while self.count <= seen:
            await self._event.wait()

    async def beyond_or_after(self, seen: int, seconds: float) -> None:
        """As :meth:`beyond`, for at most this number of seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.beyond(seen)
