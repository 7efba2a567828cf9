"""An informer: lists one collection of the API server, then watches it, until cancelled.

The rules, most of them those of client-go:

* The first list comes from the watch cache of the API server (``resourceVersion=0`` and a limit).
  It may be as old as that cache; the watch from its version delivers the rest.
* Every later list is consistent, read in pages, and replaces everything at once, so an object that
  was deleted between two lists is noticed by its absence.
* A watch that ends cleanly resumes from its last resource version, bookmarks included. Its
  time-out is random, so that many processes do not return together.
* Every failure waits: exponential back-off with jitter, or the server's capped ``Retry-After``.
* After a failure the informer compares the current version of the server with the version it has
  reached before it watches again. A server that was restored from a backup has a lower one, and
  would keep the watch open in silence.
* After failures for more than ``relist_after`` seconds the informer lists again where that is
  affordable: a server that was restored may have passed the old version meanwhile.
* These list again: 410, 504, "too large resource version" (as a reply or inside the watch), a line
  that cannot be decoded, a version that went back, and a watch without a single event or bookmark.
* An object that its collection cannot decode is left out and logged; a watch keeps what was read of
  it before until the next list.

Not guaranteed: that the handler is current. :attr:`Informer.age` is the time since the API server
last sent something, and :attr:`Informer.confirmed` is false from a failure until the server has
confirmed the version. After a version went back the age is infinite until the next list.
"""

import asyncio
import random
from collections.abc import Iterable
from contextlib import aclosing, suppress
from time import monotonic
from typing import Final, Generic, TypeVar

import structlog

from gpucore.wire.errors import WireError
from gpucore.wire.lists import WatchEventType
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import (
    KubeError,
    SilentWatchError,
    StatusError,
    UnreachableError,
    VersionWentBackError,
    failure_in_watch,
)
from gpukube.watch.collection import Collection, EventHandler, InformerObserver, NoObserver
from gpukube.watch.lister import Lister
from gpukube.watch.versions import went_back

WATCH_SECONDS: Final = (300, 600)
SHORT_SECONDS: Final = 1.0
SILENT_PART: Final = 0.9
"""Part of its time-out after which a watch without any line is taken for a silent one."""
HURRY_SECONDS: Final = 2.0
HURRY_PAUSE_SECONDS: Final = 0.1
"""Seconds of quick retries after :meth:`Informer.retry_now`, and the pause between them."""
YIELD_EVERY: Final = 16
"""Number of events between two turns of the event loop: less than a millisecond."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Informer(Generic[T]):
    """Follows one collection for one handler.

    Args:
        silence: seconds without a byte after which a watch is taken for dead; the API server
            sends a bookmark about once a minute.
        relist_after: seconds without success after which a list follows; never without it.
        in_pieces: hand the first list over while it is decoded, which needs less memory; its
            objects then arrive as updates.

    Attributes:
        version: resource version that was reached; empty when a list is next.
        synced: set once the first list is complete.
    """

    def __init__(
        self,
        client: KubeClient,
        collection: Collection[T],
        handler: EventHandler[T],
        *,
        silence: float,
        relist_after: float = float("inf"),
        in_pieces: bool = False,
        backoff: Backoff | None = None,
        observer: InformerObserver | None = None,
    ) -> None:
        self._client, self._collection, self._handler = client, collection, handler
        self._lister = Lister(client, collection, handler)
        self._silence = silence
        self._relist_after = relist_after
        self._in_pieces = in_pieces
        self._backoff = backoff or Backoff()
        self._observer = observer or NoObserver()
        self._first = True
        self._heard = float("-inf")
        self._reached = ""
        self._lines = 0
        self._failing_since = float("-inf")
        self._confirmed = asyncio.Event()
        self._hurry_until = float("-inf")
        self._hurry = asyncio.Event()
        self._watching: asyncio.Timeout | None = None
        self.version = ""
        self.synced = asyncio.Event()

    @property
    def name(self) -> str:
        return self._collection.name

    @property
    def age(self) -> float:
        """Seconds since the API server sent something; infinite while a first list is missing."""
        return monotonic() - self._heard

    @property
    def confirmed(self) -> bool:
        """No failure since the API server last confirmed the resource version."""
        return self._confirmed.is_set()

    async def wait_for_sync(self) -> None:
        """Wait until the first list is complete."""
        await self.synced.wait()

    async def wait_for_confirmation(self) -> None:
        """Wait until :attr:`confirmed` is true."""
        await self._confirmed.wait()

    def retry_now(self) -> None:
        """End the pause after a failure: something shows that the API server answers again.

        Failures of the next two seconds pause for a tenth of a second only.
        """
        self._hurry_until = monotonic() + HURRY_SECONDS
        self._hurry.set()

    def list_again(self) -> None:
        """Give up the watch and list: it may have many events that were not read yet."""
        if self._watching is not None:
            self._note_failure()
            self._watching.reschedule(0)
            self._watching = None

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            began = monotonic()
            try:
                await self._step()
            except (KubeError, WireError) as error:
                await self._recover(error, lasted=max(0.0, self._heard - began))

    async def _step(self) -> None:
        """One list, one check of the version, or one watch."""
        if not self.version:
            await self._list()
        elif not self.confirmed:
            await self._check_version()
        else:
            await self._watch()

    async def _recover(self, error: KubeError | WireError, *, lasted: float) -> None:
        """Decide whether a list is next, then wait."""
        self._note_failure()
        if isinstance(error, WireError) or error.needs_list:
            self.version = ""
        if isinstance(error, KubeError) and error.shows_restore:
            self._heard = float("-inf")
        retry_after = error.retry_after if isinstance(error, StatusError) else 0.0
        pause = self._backoff.after_failure(lasted=lasted, retry_after=retry_after)
        log.warning("informer failed", collection=self.name, error=str(error), wait=round(pause, 2))
        await self._pause(pause, hurried=not retry_after)

    async def _pause(self, seconds: float, *, hurried: bool) -> None:
        """Wait; shorter after :meth:`retry_now`, unless the server requires a pause."""
        if not hurried:
            await asyncio.sleep(seconds)
        elif monotonic() < self._hurry_until:
            await asyncio.sleep(min(seconds, HURRY_PAUSE_SECONDS))
        else:
            self._hurry.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), seconds)

    def _note_failure(self) -> None:
        if self.confirmed:
            self._failing_since = monotonic()
        self._confirmed.clear()
        self._observer.failed(self.name)

    async def _list(self) -> None:
        first, self._first = self._first, False
        if not first:
            count, version = await self._lister.again()
        elif self._in_pieces:
            count, version = await self._lister.first_in_pieces()
        else:
            count, version = await self._lister.first()
        if went_back(self._reached, version):
            log.warning("version went back", collection=self.name, was=self._reached, now=version)
        self.version = self._reached = version
        self._confirm()
        self._observer.listed(self.name)
        log.info("listed", collection=self.name, items=count, version=version)
        self.synced.set()

    def _confirm(self) -> None:
        self._heard = monotonic()
        self._confirmed.set()

    async def _check_version(self) -> None:
        """Find out whether the server still has the history that was seen before a failure."""
        if self._collection.version_path:
            self._demand_progress(await self._lister.current_version())
        if monotonic() - self._failing_since > self._relist_after:
            self.version = ""
        else:
            self._confirmed.set()

    def _demand_progress(self, version: str) -> None:
        if went_back(self._reached, version):
            raise VersionWentBackError(f"{self.name}: from {self._reached} to {version}")

    async def _watch(self) -> None:
        """Apply events until the stream ends."""
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - jitter
        began, self._lines = monotonic(), 0
        try:
            async with asyncio.timeout(None) as self._watching:
                await self._follow(seconds)
        except UnreachableError:
            self._demand_news(monotonic() - began, seconds)
            raise
        except TimeoutError:  # by list_again: the client has errors of its own
            self.version = ""
            return
        finally:
            self._watching = None
        if monotonic() - began < SHORT_SECONDS:
            raise UnreachableError(f"watch {self.name}: ended as soon as it began")
        self._demand_news(monotonic() - began, seconds)

    def _demand_news(self, lasted: float, seconds: float) -> None:
        """Raise where a watch that delivered nothing lasted for its time-out."""
        if not self._lines and lasted >= SILENT_PART * min(seconds, self._silence):
            raise SilentWatchError(f"watch {self.name}: nothing for {lasted:.0f} s")

    async def _follow(self, seconds: int) -> None:
        """Apply the events of one watch."""
        params = self._collection.params | {
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        stream = self._client.watch(self._collection.path, params=params, silence=self._silence)
        async with aclosing(stream) as batches:
            async for lines in batches:
                self._heard = monotonic()
                await self._apply_all(lines)

    async def _apply_all(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._apply(line)
            self._lines += 1
            if self._lines % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    def _apply(self, line: bytes) -> None:
        """Hand one event over."""
        event = self._collection.event_of(line)
        if event.kind is WatchEventType.ERROR:
            raise failure_in_watch(line)
        self._demand_progress(event.resource_version)
        if event.unreadable:
            log.warning("object left out", collection=self.name, object=event.unreadable)
        if event.item is not None:
            if event.kind is WatchEventType.DELETED:
                self._handler.on_delete(event.item)
            else:
                self._handler.on_update(event.item, line)
        self.version = self._reached = event.resource_version or self.version
