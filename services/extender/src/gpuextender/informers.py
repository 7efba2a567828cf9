"""The informers of the extender and their event handlers, which enter objects into the state.

Nodes and pods, which every decision needs, and, if enabled, the ConfigMaps of kube-system that
withdraw GPUs the legacy way. RBAC may forbid those: then no GPU is withdrawn that way, and the log
has a warning.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gpucore.units import NodeName
from gpucore.wire import lists
from gpucore.wire.errors import WireError
from gpucore.wire.lists import Page, WatchEvent, WatchEventType
from gpucore.wire.names import UNHEALTHY_KEY, UNHEALTHY_NAMESPACE
from gpucore.wire.nodes import Node, kept_by_plugin, unhealthy_node
from gpucore.wire.pods import Pod
from gpuextender import metrics
from gpuextender.claims import handlers as claims
from gpuextender.settings import ExtenderSettings
from gpuextender.state import State
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.watch.collection import Collection, EventHandler
from gpukube.watch.first_list import NODES_PATH, PODS_PATH
from gpukube.watch.informer import Informer


class ConfigMap(msgspec.Struct, frozen=True, gc=False):
    """One config map, by name within the followed namespace."""

    name: str
    labels: dict[str, str]
    data: dict[str, str]
    resource_version: str


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""
    continue_token: str | None = msgspec.field(name="continue", default=None)


class _ConfigMap(msgspec.Struct, gc=False):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[_ConfigMap] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata | None = None
    data: dict[str, str] | None = None
    code: int | None = None
    message: str | None = None


class _Line(msgspec.Struct):
    type: WatchEventType
    object: _Object


_LIST: Final = msgspec.json.Decoder(_List)
_LINE: Final = msgspec.json.Decoder(_Line)


def decode_config_maps(raw: bytes) -> Page[ConfigMap]:
    """Read a page of a list.

    Raises:
        WireError: the bytes are no list of config maps.
    """
    try:
        page = _LIST.decode(raw)
    except msgspec.MsgspecError as error:
        raise WireError(f"invalid list of config maps: {error}") from error
    items = tuple(_flat(item.metadata, item.data) for item in page.items or ())
    return Page(items, page.metadata.resource_version, page.metadata.continue_token or "")


def decode_config_map_event(raw: bytes) -> WatchEvent[ConfigMap]:
    """Read one line of a watch.

    Raises:
        WireError: the bytes are no event of a config map.
    """
    try:
        line = _LINE.decode(raw)
    except msgspec.MsgspecError as error:
        raise WireError(f"no event: {error}") from error
    metadata = line.object.metadata or _Metadata()
    if line.type is WatchEventType.ERROR:
        return WatchEvent(line.type, code=line.object.code or 0, message=line.object.message or "")
    if line.type is WatchEventType.BOOKMARK:
        return WatchEvent(line.type, resource_version=metadata.resource_version)
    return WatchEvent(line.type, _flat(metadata, line.object.data), metadata.resource_version)


def _flat(metadata: _Metadata, data: dict[str, str] | None) -> ConfigMap:
    return ConfigMap(metadata.name, metadata.labels or {}, data or {}, metadata.resource_version)


class NodeHandler:
    """Nodes into the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def on_replace(self, items: Iterable[Node]) -> None:
        self._state.relist_nodes(items)

    def on_update(self, item: Node, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._state.node_changed(item)

    def on_delete(self, item: Node) -> None:
        self._state.node_gone(item.name)


class PodHandler:
    """Pods into the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def on_replace(self, items: Iterable[Pod]) -> None:
        self._state.relist_pods(items)

    def on_update(self, item: Pod, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._state.pod_changed(item)

    def on_delete(self, item: Pod) -> None:
        self._state.pod_gone(item)


class PodHandlers:
    """Pods to several handlers, in order."""

    def __init__(self, handlers: Sequence[EventHandler[Pod]]) -> None:
        self._handlers = handlers

    def on_replace(self, items: Iterable[Pod]) -> None:
        listed = list(items)
        for handler in self._handlers:
            handler.on_replace(listed)

    def on_update(self, item: Pod, line: bytes) -> None:
        for handler in self._handlers:
            handler.on_update(item, line)

    def on_delete(self, item: Pod) -> None:
        for handler in self._handlers:
            handler.on_delete(item)


class ConfigMapHandler:
    """The legacy lists of unhealthy GPUs into the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._named: set[NodeName] = set()

    def on_replace(self, items: Iterable[ConfigMap]) -> None:
        vanished, self._named = self._named, set()
        for item in items:
            self.on_update(item, b"")
        for node in vanished - self._named:
            self._state.unhealthy_changed(node, "")

    def on_update(self, item: ConfigMap, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        node = unhealthy_node(item.name)
        if node is not None:
            self._named.add(node)
            said = "" if kept_by_plugin(item.labels) else item.data.get(UNHEALTHY_KEY, "")
            self._state.unhealthy_changed(node, said)

    def on_delete(self, item: ConfigMap) -> None:
        node = unhealthy_node(item.name)
        if node is not None:
            self._named.discard(node)
            self._state.unhealthy_changed(node, "")


SILENCE_PART: Final = 0.9
"""A silent watch is given up before its silence makes the process unready."""
BACKOFF_SECONDS: Final = 5.0
"""Longest pause between two tries. Replicas are few, and a bind waits for their informers."""

RELIST_SECONDS: Final = 3.0
"""An API server that was away for longer may have been restored from a backup; none is quicker."""

NODES: Final = Collection(
    "nodes", NODES_PATH, lists.decode_nodes, lists.decode_node_event, version_path=NODES_PATH
)
PODS: Final = Collection(
    "pods",
    PODS_PATH,
    lists.decode_pods,
    lists.decode_pod_event,
    version_path="/api/v1/namespaces/default/pods",
)
CONSTRAINED_PODS: Final = Collection(
    "pods",
    PODS_PATH,
    lists.decode_constrained_pods,
    lists.decode_constrained_pod_event,
    version_path="/api/v1/namespaces/default/pods",
)
_MAPS_PATH: Final = f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps"
CONFIG_MAPS: Final = Collection(
    "configmaps",
    _MAPS_PATH,
    decode_config_maps,
    decode_config_map_event,
    version_path=_MAPS_PATH,
)


class Informers:
    """The informers of one process, and what they count.

    Args:
        pods: further handlers of pods.

    Attributes:
        state: what their handlers write.
        vital: those that readiness depends on.
        all: every one.
        relisted: set whenever all pods were listed.
    """

    def __init__(
        self,
        api: KubeClient,
        settings: ExtenderSettings,
        pods: Sequence[EventHandler[Pod]] = (),
    ) -> None:
        self._api, self._silence = api, settings.stale_after * SILENCE_PART
        self.state = State(settings.names, reservation_limit=settings.assume_ttl)
        self.relisted = asyncio.Event()
        self.vital: list[Informer[Any]] = [
            self._informer(NODES, NodeHandler(self.state)),
            self._informer(
                PODS if settings.nominate == "off" else CONSTRAINED_PODS,
                PodHandlers((PodHandler(self.state), *pods)),
            ),
        ]
        self.all: list[Informer[Any]] = list(self.vital)
        if settings.unhealthy_configmaps:
            self.all.append(self._informer(CONFIG_MAPS, ConfigMapHandler(self.state)))
        if settings.claims:
            self.all += [self._informer(*each) for each in claims.handlers(self.state)]

    async def synced(self) -> None:
        """Wait until every vital collection was listed once."""
        await asyncio.gather(*(informer.wait_for_sync() for informer in self.vital))

    def listed(self, name: str) -> None:
        """A list is complete."""
        metrics.REFLECTOR_LISTS.labels(name).inc()
        if name == PODS.name:
            self.relisted.set()

    def failed(self, name: str) -> None:
        """A list or a watch failed."""
        metrics.REFLECTOR_FAILURES.labels(name).inc()

    def _informer(self, collection: Collection[Any], handler: EventHandler[Any]) -> Informer[Any]:
        return Informer(
            self._api,
            collection,
            handler,
            silence=self._silence,
            relist_after=RELIST_SECONDS,
            in_pieces=True,
            backoff=Backoff(last=BACKOFF_SECONDS),
            observer=self,
        )
