"""Records events when a GPU becomes unhealthy or healthy again.

The pods on it get an event, and the node gets one. Where it is requested, the ConfigMap
``unhealthy-gpu-<node>`` lists the unhealthy GPUs for an original extender. The Node owns it, so the
two are deleted together. A ConfigMap of another program is left alone.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from gpucore.node.allocation.holdings import Holder
from gpucore.node.health.records import HealthStatus
from gpucore.units import GpuIndex
from gpucore.wire import names as wire_names
from gpucore.wire.node.inventories import kept_by_plugin
from gpudeviceplugin.cluster.events import NORMAL, WARNING, Events, Subject
from gpudeviceplugin.state import NodeState
from gpukube.client import KubeClient
from gpukube.errors import ForbiddenError, KubeError, NotFoundError

log = structlog.get_logger()

UNHEALTHY: Final = "GpuUnhealthy"
RECOVERED: Final = "GpuRecovered"
UNRESPONSIVE: Final = "GpuNotResponding"
DAEMON_FAILED: Final = "MpsDaemonFailed"
DAEMON_SERVES: Final = "MpsDaemonServes"
ISOLATION: Final = "GpuIsolation"
API_REFUSED: Final = "GpuApiNotChanged"
LOOK_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 5.0


class NodeEvent(NamedTuple):
    """An event on the node, and on the pods of a GPU.

    Attributes:
        words: the message, without the name of the GPU.
        uuid: the GPU concerned; empty: the node alone.
        good: a recovery, reported as a Normal event.
    """

    reason: str
    words: str
    uuid: str = ""
    good: bool = False


class _Metadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


class HealthEventRecorder:
    """Events and the ConfigMap of one node.

    Args:
        node_uid: UID of the Node; empty while there is none.
    """

    def __init__(
        self,
        state: NodeState,
        kube: KubeClient,
        events: Events,
        node: str,
        node_uid: Callable[[], str],
    ) -> None:
        self._state = state
        self._node_uid = node_uid
        self._kube = kube
        self._events = events
        self._node = node
        self._notices: asyncio.Queue[NodeEvent] = asyncio.Queue()
        self._forbidden = False
        self._collection = f"/api/v1/namespaces/{wire_names.UNHEALTHY_NAMESPACE}/configmaps"
        self._name = f"{wire_names.UNHEALTHY_PREFIX}{node}"

    def announce(self, verdicts: list[HealthStatus]) -> None:
        """Queue events for these health changes."""
        for verdict in verdicts:
            state = "healthy again" if verdict.healthy else "unhealthy"
            reason = RECOVERED if verdict.healthy else UNHEALTHY
            good = verdict.healthy
            self.notify(
                NodeEvent(reason, f"is {state}: {verdict.why}", uuid=verdict.uuid, good=good)
            )

    def notify(self, notice: NodeEvent) -> None:
        """Queue one event."""
        self._notices.put_nowait(notice)

    async def tell_pods(self) -> None:
        """Write events for notices as they come, until cancelled."""
        while True:
            await self._tell(await self._notices.get())

    async def _tell(self, notice: NodeEvent) -> None:
        kind = NORMAL if notice.good else WARNING
        node = Subject("Node", self._node, uid=self._node)
        if not notice.uuid:
            await self._events.event(node, notice.reason, notice.words, kind=kind)
        for gpu in self._state.inventory.gpus:
            if gpu.uuid == notice.uuid:
                message = f"GPU {gpu.index} ({gpu.uuid}) {notice.words}"
                for subject in (node, *self._on(gpu.index)):
                    await self._events.event(subject, notice.reason, message, kind=kind)

    def _on(self, index: GpuIndex) -> list[Subject]:
        """The pods that hold something of the GPU."""
        matcher = self._state.matcher
        holders: set[Holder] = set()
        for table in matcher.tables.values():
            holders |= matcher.holdings.holders(table, index)
        names = {(holder.namespace, holder.pod) for holder in holders}
        gpus = [gpu for gpu in self._state.inventory.gpus if gpu.index == index]
        pods = self._state.pods.values()
        claiming = {uid for gpu in gpus for uid in self._state.claims.bytes_on(gpu, pods)}
        return [
            Subject("Pod", pod.name, pod.namespace, pod.uid)
            for pod in pods
            if ((pod.namespace, pod.name) in names or pod.uid in claiming) and not pod.finished
        ]

    async def keep_map(self) -> None:
        """Keep the ConfigMap equal to the unhealthy GPUs, until cancelled."""
        while True:
            seen = self._state.inventory_changed.count
            pause = await self._update_map()
            await self._state.inventory_changed.beyond_or_after(seen, pause)

    async def _update_map(self) -> float:
        """Write what changed; returns the seconds until the next look."""
        try:
            if self._state.inventory.gpus:
                await self._write_map()
        except ForbiddenError as error:
            if not self._forbidden:
                log.warning("not permitted to write the list of unhealthy GPUs", why=str(error))
            self._forbidden = True
            return LOOK_SECONDS
        except KubeError as error:
            log.warning("cannot write the list of unhealthy GPUs", why=str(error))
            return AGAIN_SECONDS
        self._forbidden = False
        return LOOK_SECONDS if self._node_uid() else AGAIN_SECONDS

    async def _write_map(self) -> None:
        ill = ",".join(str(gpu.index) for gpu in self._state.inventory.gpus if not gpu.healthy)
        await self._settle(ill, await self._found())

    async def _found(self) -> _ConfigMap | None:
        try:
            raw = await self._kube.get(f"{self._collection}/{self._name}")
        except NotFoundError:
            return None
        return msgspec.json.decode(raw, type=_ConfigMap)

    async def _settle(self, ill: str, found: _ConfigMap | None) -> None:
        """An empty list is no ConfigMap: the original reads an empty text as GPU 0."""
        data, owners = {wire_names.UNHEALTHY_KEY: ill}, self._owners()
        if found is None:
            if ill and owners:
                await self._kube.post(self._collection, self._body(data, owners))
        elif not kept_by_plugin(found.metadata.labels):
            log.debug("another program writes the list of unhealthy GPUs")
        elif not ill:
            await self._kube.delete(f"{self._collection}/{self._name}")
        elif found.data != data or (owners and found.metadata.owner_references != owners):
            body = {"data": data} | ({"metadata": {"ownerReferences": owners}} if owners else {})
            await self._kube.patch(f"{self._collection}/{self._name}", body)

    def _owners(self) -> list[dict[str, str]]:
        """The Node; none while it does not exist: what would be created then would stay."""
        uid = self._node_uid()
        return [{"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}] if uid else []

    def _body(self, data: dict[str, str], owners: list[dict[str, str]]) -> dict[str, Any]:
        labels = {wire_names.MANAGED_BY: wire_names.PLUGIN}
        metadata = {
            "name": self._name,
            "namespace": wire_names.UNHEALTHY_NAMESPACE,
            "labels": labels,
            "ownerReferences": owners,
        }
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
