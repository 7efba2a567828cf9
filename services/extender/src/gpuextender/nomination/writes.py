"""Writes ``status.nominatedNodeName`` of pending pods: one merge patch a pod, several at a time.

The patch names the pod's UID, so that it never meets another pod of the same name, and the version
of the pod that was known, so that it never replaces a nomination that kube-scheduler wrote for a
preemption meanwhile: the API server then answers 409, and the pod is looked at again. Where the
scheduler refused the pod before, the same patch sets the annotation ``gpushare/retry``: a change of
the pod's metadata makes kube-scheduler try it again at once, a change of its status does not.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import time_ns
from typing import Any, Final, Literal

import msgspec
import structlog

from gpucore.units import NodeName, PodUid
from gpucore.wire.names import RETRY
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpuextender.scheduling.binding import pod_path
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.errors import InvalidReplyError, KubeError, NotFoundError
from gpukube.rate_limiter import RateLimiter

AT_ONCE: Final = 8
BURST: Final = 200
PER_SECOND: Final = 500
MANAGER: Final = "gpushare-nominator"
"""Name of the field manager: ``metadata.managedFields`` names by it the writer of a nomination."""

log = structlog.get_logger(__name__)


class _ManagedFields(msgspec.Struct, rename="camel"):
    manager: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    managed_fields: list[_ManagedFields] = []


class _Status(msgspec.Struct, rename="camel"):
    nominated_node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class Written(msgspec.Struct, frozen=True):
    """A nomination that the API server has.

    Attributes:
        version: of the pod as it was written.
        clearing: the patch that clears it is on its way, or failed; empty while it stands.
    """

    pod: Pod
    node: NodeName
    version: str
    clearing: Literal["", "sent", "failed"] = ""


class NominationWrites:
    """The queue of patches and the workers that send them.

    Args:
        is_refused: whether no node that the scheduler offered could take a pod.

    Attributes:
        written: nominations that this process wrote, by UID, until the watch shows other ones.
        api: the API server.
        failed: called with the UID of a pod whose patch failed or came too late.
        leads: whether this process is the one that nominates.
    """

    def __init__(self, state: State, api: KubeClient, is_refused: Callable[[PodUid], bool]) -> None:
        self._state, self.api, self._is_refused = state, api, is_refused
        self._queue: deque[tuple[Pod, NodeName]] = deque()
        self._called: set[PodUid] = set()
        self._under_way: set[PodUid] = set()
        self._work = asyncio.Event()
        self._rate = RateLimiter(burst=BURST, quiet=PER_SECOND, busy=PER_SECOND)
        self.written: dict[PodUid, Written] = {}
        self.failed: Callable[[PodUid], object] = lambda _: None
        self.leads: Callable[[], Awaitable[bool]] = _always

    def __len__(self) -> int:
        """How many patches wait."""
        return len(self._queue)

    def put(self, pod: Pod, node: NodeName) -> None:
        """Nominate the pod, for which the node is reserved; empty clears the nomination."""
        self._queue.append((pod, node))
        self._work.set()

    def scheduler_called(self, uid: PodUid) -> None:
        """The scheduler is placing the pod: a nomination that is not written yet comes too late."""
        if uid in self._state.ledger.nominations() and not self.stands(uid):
            self._called.add(uid)

    def stands(self, uid: PodUid) -> bool:
        """The API server has a nomination that this process wrote, or is about to get one.

        One that nothing is reserved for any more is cleared before the pod gets another.
        """
        return uid in self.written or uid in self._under_way

    async def run(self) -> None:
        """Send for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            while not self._queue:
                self._work.clear()
                await self._work.wait()
            await asyncio.sleep(self._rate.turn(asyncio.get_running_loop().time()))
            await self.send_next()

    async def send_next(self) -> None:
        """Send the next patch that is still needed; none where another process leads now."""
        leads = await self.leads()
        while self._queue:
            pod, node = self._queue.popleft()
            if leads and self._needed(pod, node):
                self._under_way.add(pod.uid)
                try:
                    await self._send(pod, node)
                finally:
                    self._under_way.discard(pod.uid)
                return
            self._called.discard(pod.uid)
            if not node:
                self._clear_again(pod)

    def _needed(self, pod: Pod, node: NodeName) -> bool:
        if not node:
            return True
        scheduler_called = pod.uid in self._called
        self._called.discard(pod.uid)
        reserved = self._state.ledger.nomination(pod.uid)
        if reserved is None or reserved.placement.node != node:
            return False
        known = self._state.find(pod.namespace, pod.name)
        if known is not None and known.pod.nominated:
            self._state.forget_nomination(pod.uid)
            return False
        if scheduler_called and not self._is_refused(pod.uid):
            metrics.NOMINATIONS.labels("overtaken").inc()
            return False
        return True

    async def _send(self, pod: Pod, node: NodeName) -> None:
        path = f"{pod_path(pod.namespace, pod.name)}/status?fieldManager={MANAGER}"
        try:
            version = self._version(pod) if node else await version_written_by_us(self.api, pod)
            if not node and not version:
                self.written.pop(pod.uid, None)
                return
            body = self._body(pod, node, version)
            version = _version_in(await self.api.patch(path, msgspec.json.encode(body)))
        except KubeError as error:
            self._not_sent(pod, node, error)
            return
        if not node:
            metrics.NOMINATIONS.labels("cleared").inc()
            return
        self.written[pod.uid] = Written(pod, node, version)
        self._state.ledger.nomination_written(pod.uid, version)
        metrics.NOMINATIONS.labels("written").inc()
        if self._state.ledger.nomination(pod.uid) is None:
            self.failed(pod.uid)  # given back while the patch was on its way

    def _not_sent(self, pod: Pod, node: NodeName, error: KubeError) -> None:
        """A pod that changed meanwhile keeps its status; a clear is tried again."""
        if node:
            self._state.forget_nomination(pod.uid)
        else:
            self._clear_again(pod)
        metrics.NOMINATIONS.labels("failed").inc()
        self.failed(pod.uid)
        log.info("not nominated", pod=f"{pod.namespace}/{pod.name}", error=str(error))

    def _clear_again(self, pod: Pod) -> None:
        """Its nomination was not cleared; after a resignation it is the next leader's."""
        written = self.written.get(pod.uid)
        if written is not None:
            self.written[pod.uid] = msgspec.structs.replace(written, clearing="failed")

    def _version(self, pod: Pod) -> str:
        """Resource version of the pod in the state; empty where the state lacks the pod."""
        known = self._state.find(pod.namespace, pod.name)
        return known.pod.resource_version if known and known.pod.uid == pod.uid else ""

    def _body(self, pod: Pod, node: NodeName, version: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"uid": pod.uid}
        if version:
            metadata["resourceVersion"] = version
        if self._is_refused(pod.uid):
            metadata["annotations"] = {RETRY: str(time_ns())}
        return {"metadata": metadata, "status": {"nominatedNodeName": node or None}}


def _version_in(reply: bytes) -> str:
    try:
        return msgspec.json.decode(reply, type=_Object).metadata.resource_version
    except msgspec.MsgspecError as error:
        raise InvalidReplyError(f"PATCH of a nomination: no pod: {error}") from error


async def _always() -> bool:
    return True


async def version_written_by_us(api: KubeClient, pod: Pod) -> str:
    """The version of a pod whose nomination an extender wrote; empty where it is somebody else's.

    A scheduler that nominates for a preemption writes the same field.

    Raises:
        KubeError: the API server did not return the pod.
    """
    try:
        found = msgspec.json.decode(await api.get(pod_path(pod.namespace, pod.name)), type=_Object)
    except (NotFoundError, msgspec.MsgspecError):
        return ""
    same = found.metadata.uid == pod.uid and found.status.nominated_node_name == pod.nominated
    ours = any(
        one.manager == MANAGER and "f:nominatedNodeName" in one.fields_v1.get("f:status", {})
        for one in found.metadata.managed_fields
    )
    return found.metadata.resource_version if same and ours else ""
