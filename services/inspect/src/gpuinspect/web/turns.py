"""Pages that take seconds wait for each other, so that the other pages have threads left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

AT_ONCE: Final = 2
"""Pages that are computed at the same time."""
MOST: Final = 32
"""Pages that wait or are being computed."""
RETRY_SECONDS: Final = 5
REFUSED: Final = f"too many pages are being computed; try again in {RETRY_SECONDS} seconds"
_GONE: Final = 499
"""Nobody receives it."""
Respond = Callable[[Request], Response]
AsyncRespond = Callable[[Request], Coroutine[None, None, Response]]


class TooManyPagesError(Exception):
    """Too many pages wait."""


class PageTurns:
    """Admits few pages at a time, and refuses those beyond the maximum."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._pages = 0

    def of(
        self,
        shown: Respond,
        refused: Callable[[str], Response],
        costly: Callable[[Request], bool] = lambda _: True,
    ) -> AsyncRespond:
        """A page that is computed for each viewer; it waits for others without a thread.

        Args:
            refused: the response with status 429 and a sentence.
            costly: whether a request has to wait; others are computed at once.
        """

        async def respond(request: Request) -> Response:
            if not costly(request):
                return await run_in_threadpool(shown, request)
            try:
                async with self._turn():
                    if await request.is_disconnected():
                        return Response(status_code=_GONE)
                    return await run_in_threadpool(shown, request)
            except TooManyPagesError:
                response = refused(REFUSED)
                response.headers["Retry-After"] = str(RETRY_SECONDS)
                return response

        return respond

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
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
