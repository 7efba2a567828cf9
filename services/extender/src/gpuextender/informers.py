"""The informers of the extender and their event handlers, which enter objects into the state.

Nodes and pods, which every decision needs, and, if enabled, the ConfigMaps of kube-system that
withdraw GPUs the legacy way. RBAC may forbid those: then no GPU is withdrawn that way, and the log
has a warning.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from gpucore.accounting.claims import ClaimAccounts
from gpucore.units import NodeName
from gpucore.wire import lists, pod_groups
from gpucore.wire.claim.claim_specs import decode_claim_template, decode_device_class
from gpucore.wire.claim.resource_claims import ResourceClaim, decode_claim, node_of_claim
from gpucore.wire.claim.resource_slices import PATH, ResourceSlice, decode_slice
from gpucore.wire.configmaps import ConfigMap, decode_config_map
from gpucore.wire.names import CLAIM_DRIVER, UNHEALTHY_KEY, UNHEALTHY_NAMESPACE
from gpucore.wire.node.inventories import kept_by_plugin, unhealthy_node
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpuextender import metrics
from gpuextender.clock import unix_ns
from gpuextender.settings import ExtenderSettings
from gpuextender.state import State
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import KubeError
from gpukube.watch.collection import Collection, EventHandler, collection_of
from gpukube.watch.first_list import NODES_PATH, PODS_PATH, UNSCHEDULED
from gpukube.watch.informer import Informer

T = TypeVar("T")


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


class Handlers(Generic[T]):
    """Objects to several handlers, in the order in which these were added."""

    def __init__(self, *handlers: EventHandler[T]) -> None:
        self._handlers = list(handlers)

    def add(self, handler: EventHandler[T]) -> None:
        """Add one; before the first list only."""
        self._handlers.append(handler)

    def on_replace(self, items: Iterable[T]) -> None:
        listed = list(items)
        for handler in self._handlers:
            handler.on_replace(listed)

    def on_update(self, item: T, line: bytes) -> None:
        for handler in self._handlers:
            handler.on_update(item, line)

    def on_delete(self, item: T) -> None:
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
            unhealthy = "" if kept_by_plugin(item.labels) else item.data.get(UNHEALTHY_KEY, "")
            self._state.unhealthy_changed(node, unhealthy)

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
    lists.decode_pods_with_constraints,
    lists.decode_pod_event_with_constraints,
    version_path="/api/v1/namespaces/default/pods",
)
UNSCHEDULED_PODS: Final = replace(PODS, params=UNSCHEDULED)
CLAIM_API: Final = "/apis/resource.k8s.io/v1"
SLICES: Final = collection_of(
    "resourceslices",
    PATH,
    decode_slice,
    params={"fieldSelector": f"spec.driver={CLAIM_DRIVER}"},
)
CLAIMS: Final = collection_of("resourceclaims", f"{CLAIM_API}/resourceclaims", decode_claim)
TEMPLATES: Final = collection_of(
    "resourceclaimtemplates", f"{CLAIM_API}/resourceclaimtemplates", decode_claim_template
)
DEVICE_CLASSES: Final = collection_of(
    "deviceclasses", f"{CLAIM_API}/deviceclasses", decode_device_class
)
POD_GROUPS: Final = collection_of("podgroups", pod_groups.PATH, pod_groups.decode_pod_group)
SERVED_SECONDS: Final = 60.0  # between two looks for an API that is not served
_MAPS_PATH: Final = f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps"
CONFIG_MAPS: Final = collection_of(
    "configmaps", _MAPS_PATH, decode_config_map, version_path=_MAPS_PATH
)


def _pods(settings: ExtenderSettings) -> Collection[Pod]:
    """The pods that this process follows, with what it needs of each."""
    if settings.unscheduled_only:
        return UNSCHEDULED_PODS
    return PODS if settings.webhook_only or settings.nominate == "off" else CONSTRAINED_PODS


class SliceHandler:
    """ResourceSlices into the ledger.

    Args:
        changed: called with every node whose GPUs may have changed.
    """

    def __init__(self, accounts: ClaimAccounts, changed: Callable[[NodeName], object]) -> None:
        self._accounts, self._changed = accounts, changed
        self._nodes: dict[str, NodeName] = {}

    def on_replace(self, items: Iterable[ResourceSlice]) -> None:
        listed = list(items)
        self._accounts.relist_slices(listed)
        before = set(self._nodes.values())
        self._nodes = {each.name: NodeName(each.node) for each in listed}
        for node in before | set(self._nodes.values()):
            self._changed(node)

    def on_update(self, item: ResourceSlice, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._accounts.slice_changed(item)
        self._nodes[item.name] = NodeName(item.node)
        self._changed(NodeName(item.node))

    def on_delete(self, item: ResourceSlice) -> None:
        self._accounts.slice_gone(item.name)
        self._nodes.pop(item.name, None)
        self._changed(NodeName(item.node))


class ClaimHandler:
    """ResourceClaims into the ledger; ``changed`` as of :class:`SliceHandler`."""

    def __init__(
        self, state: State, accounts: ClaimAccounts, changed: Callable[[NodeName], object]
    ) -> None:
        self._ledger, self._accounts, self._changed = state.ledger, accounts, changed

    def on_replace(self, items: Iterable[ResourceClaim]) -> None:
        before = self._held()
        self._accounts.relist_claims(items)
        for node in before | self._held():
            self._changed(node)

    def on_update(self, item: ResourceClaim, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        before = self._ledger.allocation(item.uid)
        self._accounts.claim_changed(item)
        after = node_of_claim(item)
        for node in {after, before and before.placement.node} - {None}:
            self._changed(NodeName(str(node)))

    def on_delete(self, item: ResourceClaim) -> None:
        before = self._ledger.allocation(item.uid)
        self._accounts.claim_gone(item.uid)
        if before is not None:
            self._changed(before.placement.node)

    def _held(self) -> set[NodeName]:
        held = (self._ledger.allocation(uid) for uid in self._ledger.claims())
        return {each.placement.node for each in held if each is not None}


class Informers:
    """The informers of one process, and what they count.

    Attributes:
        state: what their handlers write.
        accounts: slices and claims in the ledger of the state.
        pods, claims: to which further handlers can be added.
        vital: those that readiness depends on.
        relisted: when all pods were listed, in nanoseconds of :func:`unix_ns`.
    """

    def __init__(
        self,
        api: KubeClient,
        settings: ExtenderSettings,
    ) -> None:
        self._api, self._silence = api, settings.stale_after * SILENCE_PART
        self.state = State(settings.names, reservation_limit=settings.assume_ttl)
        self.accounts = ClaimAccounts(self.state.ledger)
        self.pods = Handlers(PodHandler(self.state))
        self.claims = Handlers(ClaimHandler(self.state, self.accounts, self.state.touched))
        self.relisted: asyncio.Queue[int] = asyncio.Queue()
        self.vital: list[Informer[Any]] = [
            self._informer(NODES, NodeHandler(self.state)),
            self._informer(_pods(settings), self.pods),
        ]
        self.all: list[Informer[Any]] = list(self.vital)
        if settings.unhealthy_configmaps:
            self.all.append(self._informer(CONFIG_MAPS, ConfigMapHandler(self.state)))
        if settings.claims:
            self.follow(SLICES, SliceHandler(self.accounts, self.state.touched))
            self.follow(CLAIMS, self.claims)

    def follow(self, collection: Collection[Any], handler: EventHandler[Any]) -> Informer[Any]:
        """Follow another collection, which readiness does not depend on."""
        informer = self._informer(collection, handler)
        self.all.append(informer)
        return informer

    async def follow_pod_groups(self) -> None:
        """Follow PodGroups once the API server serves them, which few clusters do."""
        informer = self._informer(POD_GROUPS, self.state.gangs.groups)
        while True:
            if await self._serves_pod_groups():
                await informer.run()
            await asyncio.sleep(SERVED_SECONDS)

    async def _serves_pod_groups(self) -> bool:
        try:
            return pod_groups.serves_pod_groups(await self._api.get(pod_groups.API))
        except KubeError:
            return False

    async def listed_once(self) -> None:
        """Wait until every collection was listed once, those of claims included."""
        await asyncio.gather(*(informer.wait_for_sync() for informer in self.all))

    async def synced(self) -> None:
        """Wait until every vital collection was listed once."""
        await asyncio.gather(*(informer.wait_for_sync() for informer in self.vital))

    def listed(self, name: str) -> None:
        metrics.REFLECTOR_LISTS.labels(name).inc()
        if name == PODS.name:
            self.relisted.put_nowait(unix_ns())

    def failed(self, name: str) -> None:
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
