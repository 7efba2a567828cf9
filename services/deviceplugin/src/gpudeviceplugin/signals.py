"""Changes of the node's state, and waiting for them."""

import asyncio
from contextlib import suppress


class Signal:
    """Counts changes, and wakes those who wait for one beyond the count they have seen."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def fire(self) -> None:
        """Something has changed."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def beyond(self, seen: int) -> None:
        """Until there is a change that ``seen`` does not count."""
        while self.count <= seen:
            await self._event.wait()

    async def beyond_or_after(self, seen: int, seconds: float) -> None:
        """As :meth:`beyond`, but not longer than so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.beyond(seen)
