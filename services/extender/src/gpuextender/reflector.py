"""A collection of the API server, followed: list once, then watch, for ever.

Why an own one: each ready-made Python informer loses deletions over a 410, never backs off, or
decodes models. The rules here:

* the very first list comes from the API server's memory (``resourceVersion=0``, as an informer of
  client-go asks), which is half the work for it, and is passed on piece by piece; it may be as old
  as what that server has seen, and the watch from its version brings the rest;
* every later list is consistent, read in pages, and replaces everything at once: what vanished
  between two lists is known by its absence, and nothing that was seen is ever older again;
* any clean end of a watch resumes from the last resource version, bookmarks included;
* 410 (as a status or inside the stream) lists again; so does a line that cannot be decoded;
* 429, 5xx and lost connections wait, longer each time, and resume where the watch was;
* a connection that says nothing for ``silence`` seconds is taken for dead.

Not promised: that the sink is current. :attr:`Reflector.age` says how long ago the API server was
last heard, and callers refuse to decide on anything older than they can bear.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import structlog

from gpucore.wire.errors import WireError
from gpucore.wire.lists import Event, Kind, Page, cut
from gpuextender import metrics
from gpuextender.backoff import Backoff
from gpuextender.first import FIRST_PARAMS
from gpuextender.kube import Api
from gpuextender.kubeerrors import GoneError, KubeError, StatusError, UnreachableError

PAGE: Final = 1000
PIECE: Final = 500
"""Items of the first list that are decoded and passed on before others are answered."""
WATCH_SECONDS: Final = (300, 600)
SHORT_SECONDS: Final = 1.0
BREATHE_EVERY: Final = 16
"""Events that are applied before others are answered: less than a millisecond."""

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

log = structlog.get_logger(__name__)


class Sink(Protocol[T_contra]):
    """Where what is followed goes; called on the event loop, must not wait."""

    def replace(self, items: Iterable[T_contra]) -> None:
        """Everything there is; what is not among ``items`` is gone."""
        ...

    def changed(self, item: T_contra) -> None:
        """An item is new or different, or is the same once more."""
        ...

    def gone(self, item: T_contra) -> None:
        """An item was deleted; ``item`` is its last known form."""
        ...


class Collection(msgspec.Struct, Generic[T], frozen=True):
    """What to follow.

    Attributes:
        name: for logs and metrics, e.g. ``pods``.
        path: of the API server, e.g. ``/api/v1/pods``.
        params: query of lists and watches alike, e.g. a field selector.
    """

    name: str
    path: str
    page_of: Callable[[bytes], Page[T]]
    event_of: Callable[[bytes], Event[T]]
    params: dict[str, str] = msgspec.field(default_factory=dict)


class Reflector(Generic[T]):
    """Follows one collection into one sink until cancelled.

    Args:
        silence: seconds without a byte after which a watch is taken for dead; the API server
            sends a bookmark about once a minute.

    Attributes:
        version: resource version that is reached; empty when the next step is a list.
        synced: set once the first list is in.
    """

    def __init__(
        self,
        api: Api,
        collection: Collection[T],
        sink: Sink[T],
        *,
        silence: float,
        backoff: Backoff | None = None,
    ) -> None:
        self._api, self._collection, self._sink = api, collection, sink
        self._silence = silence
        self._backoff = backoff or Backoff()
        self.version = ""
        self._fresh = True
        self._heard = float("-inf")
        self.synced = asyncio.Event()

    @property
    def name(self) -> str:
        """Of the collection."""
        return self._collection.name

    @property
    def age(self) -> float:
        """Seconds since the API server was last heard; infinite before the first list."""
        return monotonic() - self._heard

    async def run(self) -> None:
        """Follow for ever; as simple as possible, for it cannot be tested to its end."""
        while True:
            began = monotonic()
            try:
                await self._step()
            except (KubeError, WireError) as error:
                await self._rest(error, lasted=max(0.0, self._heard - began))

    async def _step(self) -> None:
        """One list, or one watch from where the last one ended."""
        if self.version:
            await self._watch()
        else:
            await self._list()

    async def _rest(self, error: Exception, *, lasted: float) -> None:
        """Decide what a failure means, then wait."""
        name = self._collection.name
        metrics.REFLECTOR_FAILURES.labels(name).inc()
        if isinstance(error, GoneError | WireError):
            self.version = ""
        asked = error.retry_after if isinstance(error, StatusError) else 0.0
        pause = self._backoff.after_failure(lasted=lasted, asked=asked)
        log.warning("reflector failed", collection=name, error=str(error), wait=round(pause, 2))
        await asyncio.sleep(pause)

    async def _list(self) -> None:
        """Read everything: the very first time piece by piece, later handed over at once."""
        first, self._fresh = self._fresh, False
        count, version = await (self._list_first() if first else self._list_again())
        self.version = version
        self._hear()
        metrics.REFLECTOR_LISTS.labels(self._collection.name).inc()
        log.info("listed", collection=self._collection.name, items=count, version=version)
        self.synced.set()

    async def _list_first(self) -> tuple[int, str]:
        """Pass on what the API server remembers; how much that is, and its version."""
        params = self._collection.params | FIRST_PARAMS
        body = await self._api.get(self._collection.path, params=params)
        count, version = 0, ""
        for piece in cut(body, size=PIECE):
            page = self._collection.page_of(piece)
            for item in page.items:
                self._sink.changed(item)
            count, version = count + len(page.items), page.resource_version
            await asyncio.sleep(0)  # others are answered in between
        return count, version

    async def _list_again(self) -> tuple[int, str]:
        """Replace everything by what there is; how much that is, and its version."""
        items: list[T] = []
        version = ""
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                items += page.items
                version = page.resource_version
        self._sink.replace(items)
        return len(items), version

    async def _pages(self) -> AsyncGenerator[Page[T], None]:
        """Pages in order; the next one is on its way while one is being used."""
        coming: asyncio.Task[bytes] | None = asyncio.create_task(self._page(""))
        try:
            while coming is not None:
                page = self._collection.page_of(await coming)
                following = page.continue_token
                coming = asyncio.create_task(self._page(following)) if following else None
                await asyncio.sleep(0)  # else it would be sent only when this page is used up
                yield page
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _page(self, following: str) -> bytes:
        params = self._collection.params | {"limit": str(PAGE)}
        more = {"continue": following} if following else {}
        return await self._api.get(self._collection.path, params=params | more)

    async def _watch(self) -> None:
        """Apply events until the stream ends."""
        params = self._collection.params | {
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - jitter
        }
        began, said = monotonic(), 0
        stream = self._api.watch(self._collection.path, params=params, silence=self._silence)
        async for lines in stream:
            said += len(lines)
            self._hear()
            for count, line in enumerate(lines, 1):
                self._apply(self._collection.event_of(line))
                if count % BREATHE_EVERY == 0:
                    await asyncio.sleep(0)
        if not said and monotonic() - began < SHORT_SECONDS:
            raise UnreachableError("the watch ended as soon as it began")

    def _apply(self, event: Event[T]) -> None:
        """Hand one event over."""
        if event.kind is Kind.ERROR:
            kind = GoneError if event.code == 410 else StatusError
            raise kind("inside the watch", status=event.code, message=event.message)
        if event.item is not None:
            if event.kind is Kind.DELETED:
                self._sink.gone(event.item)
            else:
                self._sink.changed(event.item)
        self.version = event.resource_version or self.version

    def _hear(self) -> None:
        self._heard = monotonic()
