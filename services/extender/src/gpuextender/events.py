"""Events on pods: where a pod went, or why it could not be bound.

Best effort and in the background: a bind never waits for one. What is said again about a pod within
``QUIET_SECONDS`` is counted into the event that is there, so that events never outnumber binds.
Events give way to binds (:mod:`gpuextender.pace`): after a burst they are written one by one, the
more slowly the more is going on, and what would wait too long for that is dropped and counted.
"""

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime
from time import monotonic, time_ns
from typing import Final

import msgspec
import structlog

from gpucore.units import PodUid
from gpucore.wire.pods import Pod
from gpuextender import metrics
from gpuextender.pace import Pace
from gpukube.client import KubeClient
from gpukube.errors import KubeError, NotFoundError

COMPONENT: Final = "gpushare-extender"
QUIET_SECONDS: Final = 30.0
QUEUE_LIMIT: Final = 10_000
BURST: Final = 20
QUIET_PER_SECOND: Final = 50
BUSY_PER_SECOND: Final = 5
REMEMBERED: Final = 4_096
MESSAGE_LIMIT: Final = 1_024

log = structlog.get_logger(__name__)
_Key = tuple[PodUid, str]


class _Said(msgspec.Struct):
    """What was said of one pod for one reason."""

    pod: Pod
    kind: str
    reason: str
    message: str
    first: str
    name: str
    count: int = 0
    written: float = float("-inf")
    exists: bool = False


class Recorder:
    """Takes events at once and writes them one by one in :meth:`run`."""

    def __init__(self, api: KubeClient, *, instance: str) -> None:
        self._api = api
        self._instance = instance
        self._said: OrderedDict[_Key, _Said] = OrderedDict()
        self._queue: asyncio.Queue[_Said] = asyncio.Queue(QUEUE_LIMIT)
        self._pace = Pace(burst=BURST, quiet=QUIET_PER_SECOND, busy=BUSY_PER_SECOND)

    def note(self, pod: Pod, reason: str, message: str) -> None:
        """Something went as it should."""
        self._say(pod, "Normal", reason, message)

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        """Something that the pod's owner should know."""
        self._say(pod, "Warning", reason, message)

    async def run(self) -> None:
        """Write for ever."""
        while True:
            said = await self._queue.get()
            await asyncio.sleep(self._pace.turn(monotonic()))
            try:
                await self._write(said)
                metrics.EVENTS.labels("written").inc()
            except KubeError as error:
                metrics.EVENTS.labels("dropped").inc()
                log.info("event dropped", error=str(error))
            finally:
                self._queue.task_done()

    async def flush(self, *, seconds: float) -> None:
        """Wait until everything said so far is written, at most ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._queue.join()
        except TimeoutError:
            log.warning("events left unwritten", count=self._queue.qsize())

    def _say(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        said = self._remember(pod, kind, reason)
        said.message = message[:MESSAGE_LIMIT]
        said.count += 1
        if monotonic() - said.written < QUIET_SECONDS:
            metrics.EVENTS.labels("aggregated").inc()
            return
        said.written = monotonic()
        self._pace.said(said.written)
        try:
            self._queue.put_nowait(said)
        except asyncio.QueueFull:
            metrics.EVENTS.labels("dropped").inc()

    def _remember(self, pod: Pod, kind: str, reason: str) -> _Said:
        key = (pod.uid, reason)
        said = self._said.get(key)
        if said is None:
            name = f"{pod.name}.{time_ns():x}"
            said = self._said[key] = _Said(pod, kind, reason, "", _now(), name)
            if len(self._said) > REMEMBERED:
                self._said.popitem(last=False)
        return said

    async def _write(self, said: _Said) -> None:
        path = f"/api/v1/namespaces/{said.pod.namespace}/events"
        if said.exists:
            body = {"count": said.count, "lastTimestamp": _now(), "message": said.message}
            try:
                await self._api.patch(f"{path}/{said.name}", msgspec.json.encode(body))
            except NotFoundError:
                said.exists = False
            else:
                return
        await self._api.post(path, msgspec.json.encode(self._event(said)))
        said.exists = True

    def _event(self, said: _Said) -> dict[str, object]:
        pod = said.pod
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": said.name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": said.kind,
            "reason": said.reason,
            "message": said.message,
            "count": said.count,
            "firstTimestamp": said.first,
            "lastTimestamp": _now(),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
