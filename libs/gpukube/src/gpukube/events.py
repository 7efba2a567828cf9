"""An event recorder: takes events at once and writes them in the background, one by one.

Best effort: nothing waits for an event and a failed one is dropped. An event that is repeated
within ``QUIET_SECONDS`` is counted into the one that is there, so that events never outnumber what
they report. They are written under a rate limit (:mod:`gpukube.rate_limiter`), and dropped where
too many wait.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, time_ns
from typing import Final, Literal

import msgspec
import structlog

from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError
from gpukube.rate_limiter import RateLimiter

QUIET_SECONDS: Final = 30.0
QUEUE_LIMIT: Final = 10_000
BURST: Final = 20
QUIET_PER_SECOND: Final = 50
BUSY_PER_SECOND: Final = 5
REMEMBERED: Final = 4_096
MESSAGE_LIMIT: Final = 1_024
NAME_LIMIT: Final = 253

EventType = Literal["Normal", "Warning"]
Outcome = Literal["written", "aggregated", "dropped"]

log = structlog.get_logger(__name__)


class ObjectReference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The object that an event is about; a node has no namespace."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


class EventSource(msgspec.Struct, frozen=True):
    """The component that records events.

    Attributes:
        component: name of the program.
        instance: the replica.
        host: the node, for programs that speak for one.
        may_patch: RBAC allows to count a repeated event into the existing one; a new one else.
    """

    component: str
    instance: str
    host: str = ""
    may_patch: bool = True


class _Event(msgspec.Struct):
    """One event and its repetitions."""

    about: ObjectReference
    type: EventType
    reason: str
    message: str
    first: str
    name: str = ""
    count: int = 0
    written: float = float("-inf")
    exists: bool = False


_Key = tuple[ObjectReference, str, str]


def no_count(_: Outcome) -> None:
    """Metrics that are not collected."""


class EventRecorder:
    """Records events of one program; :meth:`run` writes them.

    Args:
        counted: called with what became of each event.
    """

    def __init__(
        self,
        client: KubeClient,
        source: EventSource,
        *,
        counted: Callable[[Outcome], None] = no_count,
    ) -> None:
        self._client, self._source, self._counted = client, source, counted
        self._events: OrderedDict[_Key, _Event] = OrderedDict()
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(QUEUE_LIMIT)
        self._limiter = RateLimiter(burst=BURST, quiet=QUIET_PER_SECOND, busy=BUSY_PER_SECOND)

    def record(
        self,
        about: ObjectReference,
        type_: EventType,
        reason: str,
        message: str,
        *,
        topic: str = "",
    ) -> None:
        """Record an event.

        Args:
            reason: CamelCase.
            message: a sentence; a long one is cut to what the API server accepts.
            topic: events of the same reason about the same object are repetitions of each other
                only where they have the same topic.
        """
        event = self._known(about, type_, reason, topic)
        event.message = message[:MESSAGE_LIMIT]
        event.count += 1
        now = monotonic()
        if now - event.written < QUIET_SECONDS:
            self._counted("aggregated")
            return
        self._limiter.arrived(now)
        try:
            self._queue.put_nowait(event)
            event.written = now
        except asyncio.QueueFull:
            self._counted("dropped")

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            event = await self._queue.get()
            await asyncio.sleep(self._limiter.turn(monotonic()))
            try:
                await self._write(event)
                self._counted("written")
            except KubeError as error:
                self._counted("dropped")
                log.info("event dropped", error=str(error))
            finally:
                self._queue.task_done()

    async def flush(self, *, seconds: float) -> None:
        """Wait until everything recorded so far is written, at most ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._queue.join()
        except TimeoutError:
            log.warning("events not written", count=self._queue.qsize())

    def _known(self, about: ObjectReference, type_: EventType, reason: str, topic: str) -> _Event:
        key = (about, reason, topic)
        event = self._events.get(key)
        if event is None:
            event = self._events[key] = _Event(about, type_, reason, "", _now())
            if len(self._events) > REMEMBERED:
                self._events.popitem(last=False)
        return event

    async def _write(self, event: _Event) -> None:
        path = event_path(event.about)
        if event.exists and self._source.may_patch:
            body = {"count": event.count, "lastTimestamp": _now(), "message": event.message}
            try:
                await self._client.patch(f"{path}/{event.name}", msgspec.json.encode(body))
            except NotFoundError:
                event.exists = False
            else:
                return
        event.name = _new_name(event.about)  # an event whose reply was lost may have the last one
        await self._client.post(path, msgspec.json.encode(_body(event, self._source)))
        event.exists = True


def event_path(about: ObjectReference) -> str:
    """The path at which events about an object are created."""
    return f"/api/v1/namespaces/{_namespace(about)}/events"


def event_body(
    about: ObjectReference, type_: EventType, reason: str, message: str, source: EventSource
) -> dict[str, object]:
    """A new event, for programs that write one themselves."""
    text, name = message[:MESSAGE_LIMIT], _new_name(about)
    return _body(_Event(about, type_, reason, text, _now(), name, count=1), source)


def _new_name(about: ObjectReference) -> str:
    """A name that no event has: that of the object, as far as there is room, and the time."""
    ending = f".{time_ns():x}"
    return about.name[: NAME_LIMIT - len(ending)].rstrip("-.") + ending


def _body(event: _Event, source: EventSource) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": _namespace(event.about)},
        "involvedObject": {"apiVersion": "v1", **msgspec.to_builtins(event.about)},
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": event.count,
        "firstTimestamp": event.first,
        "lastTimestamp": _now(),
        "source": {"component": source.component} | ({"host": source.host} if source.host else {}),
        "reportingComponent": source.component,
        "reportingInstance": source.instance,
    }


def _namespace(about: ObjectReference) -> str:
    return about.namespace or "default"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
