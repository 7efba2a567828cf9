"""The informers of the extender.

Nodes and pods, without which nothing is decided, and, where asked for, the ConfigMaps of
kube-system that withdraw GPUs the legacy way. RBAC may forbid those: then none are withdrawn that
way, and the log says so.
"""

import asyncio
from typing import Any, Final

from gpucore.wire import lists
from gpucore.wire.names import UNHEALTHY_NAMESPACE
from gpuextender import metrics
from gpuextender.configmaps import decode_config_map_event, decode_config_maps
from gpuextender.first import NODES_PATH, PODS_PATH
from gpuextender.settings import Settings
from gpuextender.sinks import ConfigMapSink, NodeSink, PodSink
from gpuextender.state import State
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.collection import Collection, EventHandler
from gpukube.informer import Informer

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
_MAPS_PATH: Final = f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps"
CONFIG_MAPS: Final = Collection(
    "configmaps",
    _MAPS_PATH,
    decode_config_maps,
    decode_config_map_event,
    version_path=_MAPS_PATH,
)


class Following:
    """The informers of one process, and what they count.

    Attributes:
        state: what their handlers write.
        vital: those that readiness depends on.
        all: every one.
        relisted: set whenever all pods were listed.
    """

    def __init__(self, api: KubeClient, settings: Settings) -> None:
        self._api, self._silence = api, settings.stale_after * SILENCE_PART
        self.state = State(settings.names, reservation_limit=settings.assume_ttl)
        self.relisted = asyncio.Event()
        self.vital: list[Informer[Any]] = [
            self._informer(NODES, NodeSink(self.state)),
            self._informer(PODS, PodSink(self.state)),
        ]
        self.all: list[Informer[Any]] = list(self.vital)
        if settings.unhealthy_configmaps:
            self.all.append(self._informer(CONFIG_MAPS, ConfigMapSink(self.state)))

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
