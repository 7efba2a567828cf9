"""The open watches of the fake API server."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from aiohttp import web

from gpukube.testing.answers import Object, Selector, selector_of, send_event, status_of
from gpukube.testing.store import Revision, Store


class WatchTiming(NamedTuple):
    """When watches deliver events; see the attributes of the fake API server."""

    delay_seconds: float
    open: asyncio.Event
    bookmarks_every: float | None


class Watches:
    """Streams changes of stores until a test cuts the connections.

    Args:
        revision: of all stores.
        timing: returns when watches deliver events.
    """

    def __init__(self, revision: Revision, timing: Callable[[], WatchTiming]) -> None:
        self._revision, self._timing = revision, timing
        self._tasks: set[asyncio.Task[None]] = set()

    def drop(self) -> None:
        """Cut every connection."""
        for task in self._tasks:
            task.cancel()

    def count(self, plural: str) -> int:
        """Number of open watches on a kind."""
        return sum(1 for task in self._tasks if task.get_name() == plural)

    async def serve(self, request: web.Request, store: Store, version: int) -> web.StreamResponse:
        """Stream until the client leaves or a test cuts the connection."""
        response = web.StreamResponse()
        await response.prepare(request)
        task = asyncio.ensure_future(self._stream(response, store, selector_of(request), version))
        task.set_name(request.match_info["plural"])
        self._tasks.add(task)
        try:
            await task
        except (asyncio.CancelledError, ConnectionError):
            if request.transport:
                request.transport.close()
        finally:
            task.cancel()
            self._tasks.discard(task)
        return response

    async def _stream(
        self, response: web.StreamResponse, store: Store, selected: Selector, version: int
    ) -> None:
        while True:
            if version < store.oldest:
                await send_event(response, "ERROR", status_of(410, "too old resource version"))
                return
            upto = self._revision.number
            for made, kind, item in store.events_since(version, selected):
                await self._due(made)
                await send_event(response, kind, item)
            if version < upto or (version == upto and self._timing().bookmarks_every):
                await self._due(time.monotonic())
                await send_event(response, "BOOKMARK", _bookmark(upto))
            version = max(version, upto)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timing().bookmarks_every):
                    await self._revision.wait_beyond(version)

    async def _due(self, made: float) -> None:
        timing = self._timing()
        await asyncio.sleep(max(0.0, made + timing.delay_seconds - time.monotonic()))
        await timing.open.wait()


def _bookmark(version: int) -> Object:
    return {"kind": "Bookmark", "metadata": {"resourceVersion": str(version)}}
