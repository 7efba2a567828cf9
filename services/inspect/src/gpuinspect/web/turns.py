"""Pages that take seconds wait for each other, so that the other pages have threads left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

AT_ONCE: Final = 2
"""Pages that are computed at the same time."""
MOST: Final = 32
"""Pages that wait or are being computed."""
RETRY_SECONDS: Final = 5


class TooManyPagesError(Exception):
    """Too many pages wait."""


class PageTurns:
    """Admits few pages at a time, and refuses those beyond the maximum."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._pages = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The turn of one page.

        Raises:
            TooManyPagesError: too many wait.
        """
        if self._pages >= MOST:
            raise TooManyPagesError
        self._pages += 1
        try:
            async with self._turns:
                yield
        finally:
            self._pages -= 1
