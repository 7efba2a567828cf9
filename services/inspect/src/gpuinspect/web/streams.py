"""Event streams have no end, and each has a connection: few for a user, and some for all."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

EACH: Final = 32
"""Streams of one session or token: each open page of a browser has one."""
MOST: Final = 384
"""Streams of all users, of 512 connections: pages without a stream are still served."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStreams:
    """Counts open streams, and refuses those beyond the maximum."""

    def __init__(self) -> None:
        self._open = Counter[str]()

    def respond(self, who: str, events: AsyncIterator[str]) -> Response:
        """The stream, or status 429.

        Args:
            who: identifies the session or token; empty where nobody logs in.
        """
        if self._open.total() >= MOST or (who and self._open[who] >= EACH):
            return PlainTextResponse("too many event streams are open", status_code=429)
        self._open[who] += 1
        return _Stream(events, self._open, who)


class _Stream(StreamingResponse):
    """A stream that is open until its connection ends."""

    def __init__(self, events: AsyncIterator[str], opened: Counter[str], who: str) -> None:
        super().__init__(events, media_type="text/event-stream", headers=_HEADERS)
        self._opened, self._who = opened, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._opened[self._who] -= 1
            if not self._opened[self._who]:
                del self._opened[self._who]
