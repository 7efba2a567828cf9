"""Lists of one collection: the first from the cache of the API server, later ones consistent."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Generic, TypeVar

import structlog

from gpucore.wire.list_pieces import ListPieces
from gpucore.wire.lists import Page
from gpukube.client import KubeClient
from gpukube.errors import InvalidReplyError
from gpukube.watch.collection import Collection, EventHandler
from gpukube.watch.first_list import FIRST_LIST, PAGE

PIECE_BYTES: Final = 2**19
"""What is decoded of the first list at once, between other work of the event loop."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Lister(Generic[T]):
    """Reads lists and hands them to a handler."""

    def __init__(
        self, client: KubeClient, collection: Collection[T], handler: EventHandler[T]
    ) -> None:
        self._client, self._collection, self._handler = client, collection, handler

    async def first_in_pieces(self) -> tuple[int, str]:
        """Hand the first list over while it arrives; number of items and resource version."""
        count, version = 0, ""
        async with aclosing(self._first_pieces()) as pieces:
            async for piece in pieces:
                for item in piece.items:
                    self._handler.on_update(item, b"")
                count, version = count + len(piece.items), piece.resource_version
        return count, self._known(version)

    async def first(self) -> tuple[int, str]:
        """Hand the first list over as a whole; number of items and resource version."""
        return await self._replace(self._first_pieces())

    async def again(self) -> tuple[int, str]:
        """Hand a consistent list over as a whole; number of items and resource version."""
        return await self._replace(self._pages(await self._page("")))

    async def current_version(self) -> str:
        """The current resource version of the server, by a consistent read of one key."""
        params = {"fieldSelector": f"metadata.name={self._collection.version_name}"}
        body = await self._client.get(self._collection.version_path, params=params)
        return self._known(self._collection.page_of(body).resource_version)

    async def _replace(self, pages: AsyncGenerator[Page[T], None]) -> tuple[int, str]:
        items: list[T] = []
        version = ""
        async with aclosing(pages):
            async for page in pages:
                items += page.items
                version = page.resource_version
        known = self._known(version)  # else an error page with status 200 would be an empty list
        self._handler.on_replace(items)
        return len(items), known

    def _known(self, version: str) -> str:
        """The version of a list.

        Raises:
            InvalidReplyError: it has none, so no API server wrote it.
        """
        if not version:
            raise InvalidReplyError(f"GET {self._collection.path}: a list without a version")
        return version

    async def _first_pieces(self) -> AsyncGenerator[Page[T], None]:
        params = self._collection.params | FIRST_LIST
        pieces = ListPieces(self._decoded, size=PIECE_BYTES)
        chunks = self._client.get_in_chunks(self._collection.path, params=params)
        async with aclosing(chunks):
            async for chunk in chunks:
                for piece in pieces.add(chunk):
                    yield piece
                    await asyncio.sleep(0)  # other work runs between two pieces
        last = pieces.last()
        yield last
        token = last.continue_token
        if token:  # a server without a watch cache
            async with aclosing(self._pages(await self._page(token))) as pages:
                async for page in pages:
                    yield page

    async def _pages(self, first: bytes) -> AsyncGenerator[Page[T], None]:
        """Pages in order; the next one is requested before the current one is used."""
        page = self._decoded(first)
        following: asyncio.Task[bytes] | None = None
        try:
            while page.continue_token:
                following = asyncio.create_task(self._page(page.continue_token))
                await asyncio.sleep(0)  # else the request would be sent when this page is used up
                yield page
                page = self._decoded(await following)
            yield page
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    def _decoded(self, raw: bytes) -> Page[T]:
        page = self._collection.page_of(raw)
        for each in page.unreadable:
            log.warning("object left out", collection=self._collection.name, object=each)
        return page

    async def _page(self, token: str) -> bytes:
        params = self._collection.params | {"limit": str(self._collection.page_size or PAGE)}
        more = {"continue": token} if token else {}
        return await self._client.get(self._collection.path, params=params | more)
