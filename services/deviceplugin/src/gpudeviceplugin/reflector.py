"""Keeps up with one collection of the API server: list, then watch, for ever.

A watch that ends goes on from the last version it has seen; one whose version has expired (410)
lists anew, and the sink gets the whole list, so that what vanished meanwhile is noticed.
Everything else waits a growing, jittered moment before it is tried again.

It keeps no objects: the sink does. It promises nothing about freshness but :attr:`synced`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Final, Generic, Protocol, TypeVar

import structlog

from gpucore.wire.errors import WireError
from gpucore.wire.lists import Event, Kind, Page
from gpudeviceplugin import telemetry
from gpudeviceplugin.kube import ApiError, ApiStatusError, Kube

T = TypeVar("T")
Item_contra = TypeVar("Item_contra", contravariant=True)
GONE: Final = 410
WATCH_SECONDS: Final = 300
SILENCE_SECONDS: Final = 330.0
FIRST_PAUSE: Final = 0.8
LONGEST_PAUSE: Final = 30.0

log = structlog.get_logger()


class Sink(Protocol[Item_contra]):
    """Where the objects go. Called on the event loop; must not block."""

    def listed(self, items: tuple[Item_contra, ...]) -> None:
        """These are all objects there are."""

    def happened(self, kind: Kind, item: Item_contra, raw: bytes) -> None:
        """One object was ADDED, MODIFIED or DELETED; ``raw`` is the line of the watch."""


class Reflector(Generic[T]):
    """One collection, narrowed by a field selector."""

    def __init__(
        self,
        kube: Kube,
        sink: Sink[T],
        *,
        path: str,
        selector: str,
        decode_list: Callable[[bytes], Page[T]],
        decode_event: Callable[[bytes], Event[T]],
    ) -> None:
        self._kube = kube
        self._sink = sink
        self._path = path
        self._selector = selector
        self._decode_list = decode_list
        self._decode_event = decode_event
        self._version = ""
        self._pause = FIRST_PAUSE
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            try:
                await self._follow()
            except (ApiError, WireError) as error:
                await self._recover(error)

    async def _follow(self) -> None:
        if not self._version:
            await self._list()
        async for event, raw in self._events():
            self._take(event, raw)

    async def _list(self) -> None:
        page = self._decode_list(await self._kube.get(self._path, self._query()))
        telemetry.RELISTS.labels(self._path.rpartition("/")[2]).inc()
        self._sink.listed(page.items)
        self._version = page.resource_version
        self._pause = FIRST_PAUSE
        self.synced.set()

    async def _events(self) -> AsyncIterator[tuple[Event[T], bytes]]:
        query = self._query() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async for line in self._kube.watch(self._path, query, silence=SILENCE_SECONDS):
            yield self._decode_event(line), line

    def _take(self, event: Event[T], raw: bytes) -> None:
        if event.kind is Kind.ERROR:
            raise ApiStatusError(event.code, event.message)
        self._version = event.resource_version or self._version
        self._pause = FIRST_PAUSE
        if event.item is not None:
            self._sink.happened(event.kind, event.item, raw)

    def _query(self) -> dict[str, str]:
        return {"fieldSelector": self._selector}

    async def _recover(self, error: Exception) -> None:
        """An expired version lists at once; anything else waits, and an unread event lists too."""
        if isinstance(error, WireError):
            self._version = ""
        if isinstance(error, ApiStatusError) and error.status == GONE:
            self._version = ""
            log.info("relisting", path=self._path, why=str(error))
            return
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        log.warning(
            "the API server does not answer", path=self._path, why=str(error), again_in=pause
        )
        await asyncio.sleep(pause)
