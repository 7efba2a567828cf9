"""The writes of a bind: a Binding, when it is due, and an event with the node and the GPUs.

The Binding has the node, a UID precondition and every annotation. The API server merges the
annotations into the pod in the same update that sets its node, so there is no half state to clean
up. Sending it again is safe: a bound pod answers 409.

Events are recorded by :mod:`gpukube.events`, in the background: a bind never waits for one.

A write wakes the API server, etcd, and every client that watches pods. While a backlog is placed,
waking them for each pod takes more CPU than the writes; docs/nomination.md has figures. So while
more than :data:`BACKLOG` pods are pending, the binds of :data:`BATCH_SECONDS` are written together.

kube-scheduler filters the next pod while the last one is bound, so it loses no time. A scheduler
that waits for each bind would; it filters no pod meanwhile, so its binds are written at once.
So are binds without filter calls between them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, PodRequest
from gpucore.units import NodeName
from gpucore.wire.names import Names
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import KubeError, ServerError, ThrottledError, UnreachableError
from gpukube.events import EventRecorder, EventSource, ObjectReference, Outcome

FIRST_PAUSE: Final = 0.05
LAST_PAUSE: Final = 1.0
BATCH_SECONDS: Final = 0.1
BACKLOG: Final = 64
"""Pending pods; the binds that are under way count, so it is more than a quick stream has."""


class WriteResult(msgspec.Struct, frozen=True):
    """The result of the write.

    Attributes:
        written: the API server confirmed it.
        silent: no reply, so it may have been done.
        error: of the last try.
    """

    written: bool = False
    silent: bool = False
    error: str = ""


class BindBatches:
    """When binds are written.

    Args:
        pending: number of pods that are not bound.
        filtered: when a scheduler last sent a pod, in seconds of a monotonic clock.
    """

    def __init__(self, pending: Callable[[], int], filtered: Callable[[], float]) -> None:
        self._pending = pending
        self._filtered = filtered
        self._under_way = 0
        self._began = self._ended = self._overlapped = self._written = float("-inf")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Write one bind: at once, but in a backlog :data:`BATCH_SECONDS` after another."""
        now = monotonic()
        if self._began < self._filtered() < (now if self._under_way else self._ended):
            self._overlapped = now
        if not self._under_way:
            self._began = now
        self._under_way += 1
        try:
            await self._wait(now)
            yield
        finally:
            self._under_way -= 1
            self._ended = monotonic()

    async def _wait(self, now: float) -> None:
        due = max(now, self._written + BATCH_SECONDS)
        goes_on = now - self._overlapped < BATCH_SECONDS
        if due > now and goes_on and self._pending() > BACKLOG:
            await asyncio.sleep(due - now)
        else:
            due = now
        self._written = due


class BindingWriter:
    """Writes Bindings.

    Args:
        deadline: seconds after which no further try begins and a running one is given up.
        batches: when each is written.
    """

    def __init__(self, api: KubeClient, *, deadline: float, batches: BindBatches) -> None:
        self._api = api
        self._deadline = deadline
        self._batches = batches

    async def write(self, pod: Pod, node: NodeName, annotations: Mapping[str, str]) -> WriteResult:
        """Send until it is done, refused, or late."""
        until = monotonic() + self._deadline
        async with self._batches.turn():
            return await self._send(pod, node, annotations, until=until)

    async def _send(
        self, pod: Pod, node: NodeName, annotations: Mapping[str, str], *, until: float
    ) -> WriteResult:
        path = pod_path(pod.namespace, pod.name) + "/binding"
        body = _body(pod, node, annotations)
        backoff = Backoff(first=FIRST_PAUSE, last=LAST_PAUSE)
        silent, failure = False, "the deadline passed before the Binding was sent"
        while monotonic() < until:  # this process may have stood still
            metrics.BIND_WRITES.inc()
            try:
                async with asyncio.timeout(until - monotonic()):
                    await self._api.post(path, body)
                return WriteResult(written=True)
            except (ThrottledError, ServerError, UnreachableError, TimeoutError) as error:
                silent = silent or not isinstance(error, ThrottledError)
                failure = str(error) or "the API server is silent"
                pause = backoff.after_failure(
                    lasted=0, retry_after=getattr(error, "retry_after", 0.0)
                )
                if monotonic() + pause >= until:
                    break
            except KubeError as error:
                return WriteResult(error=str(error))
            await asyncio.sleep(pause)
        return WriteResult(silent=silent, error=failure)


def pod_path(namespace: str, name: str) -> str:
    """Path of a pod on the API server."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def annotations(
    allocation: Allocation, pod_request: PodRequest, names: Names, node_info: NodeInfo
) -> dict[str, str]:
    """The annotations that record the allocation; its node has an inventory."""
    if node_info.inventory is None:
        raise ValueError(f"an allocation on {node_info.name}, which has no GPUs")
    return annotations_of(
        allocation.placement,
        pod_request,
        names,
        inventory=node_info.inventory,
        assume_time=allocation.assume_time,
        exclusive=allocation.exclusive,
    )


def _body(pod: Pod, node: NodeName, annotations: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )


COMPONENT: Final = "gpushare-extender"


class Recorder(EventRecorder):
    """Records events on pods.

    Args:
        instance: name of this replica.
    """

    def __init__(self, api: KubeClient, *, instance: str) -> None:
        super().__init__(api, EventSource(COMPONENT, instance), counted=_count)

    def note(self, pod: Pod, reason: str, message: str) -> None:
        """Something went as it should."""
        self.record(_reference(pod), "Normal", reason, message)

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        """Record an event for the pod's owner."""
        self.record(_reference(pod), "Warning", reason, message)


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference("Pod", pod.name, pod.namespace, pod.uid)


def _count(outcome: Outcome) -> None:
    metrics.EVENTS.labels(outcome).inc()
