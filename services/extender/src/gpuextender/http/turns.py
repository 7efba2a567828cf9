"""Questions about the whole cluster wait for each other: few of them, and only for who is there."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from fastapi import Request

MOST_QUESTIONS: Final = 8
"""Questions that wait or are being answered; each keeps its body and its connection."""
RETRY_SECONDS: Final = 5
T = TypeVar("T")


class TooManyQuestionsError(Exception):
    """Too many questions wait."""

    def __init__(self) -> None:
        super().__init__(
            f"{MOST_QUESTIONS} questions are waiting; try again in {RETRY_SECONDS} seconds"
        )


class ClientGoneError(Exception):
    """The client closed the connection before the answer was ready."""


class Turns:
    """Admits one question at a time, and refuses those beyond the maximum."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._questions = 0

    def check(self) -> None:
        """Refuse a question before it is read.

        Raises:
            TooManyQuestionsError: too many wait.
        """
        if self._questions >= MOST_QUESTIONS:
            raise TooManyQuestionsError

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The turn of one question.

        Raises:
            TooManyQuestionsError: too many wait.
        """
        self.check()
        self._questions += 1
        try:
            async with self._turn:
                yield
        finally:
            self._questions -= 1


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled if the client closes the connection.

    Raises:
        ClientGoneError: it did.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
