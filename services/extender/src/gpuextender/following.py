"""What is followed of the API server.

Nodes and pods, without which nothing is decided, and, where asked for, the ConfigMaps of
kube-system that withdraw GPUs the legacy way. RBAC may forbid those: then none are withdrawn that
way, and the log says so.
"""

import asyncio
from typing import Any, Final

from gpucore.wire import lists
from gpucore.wire.names import UNHEALTHY_NAMESPACE
from gpuextender.configmaps import decode_config_map_event, decode_config_maps
from gpuextender.first import NODES_PATH, PODS_PATH
from gpuextender.kube import Api
from gpuextender.reflector import Collection, Reflector
from gpuextender.settings import Settings
from gpuextender.sinks import ConfigMapSink, NodeSink, PodSink
from gpuextender.state import State

SILENCE_PART: Final = 0.9
"""A silent watch is given up before its silence makes the process unready."""

NODES: Final = Collection("nodes", NODES_PATH, lists.decode_nodes, lists.decode_node_event)
PODS: Final = Collection("pods", PODS_PATH, lists.decode_pods, lists.decode_pod_event)
CONFIG_MAPS: Final = Collection(
    "configmaps",
    f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps",
    decode_config_maps,
    decode_config_map_event,
)


class Following:
    """The reflectors of one process.

    Attributes:
        state: where they put what they read.
        vital: those that readiness rests on.
        all: every one.
    """

    def __init__(self, api: Api, settings: Settings) -> None:
        self.state = State(settings.names, reservation_limit=settings.assume_ttl)
        silence = settings.stale_after * SILENCE_PART
        self.vital: list[Reflector[Any]] = [
            Reflector(api, NODES, NodeSink(self.state), silence=silence),
            Reflector(api, PODS, PodSink(self.state), silence=silence),
        ]
        self.all: list[Reflector[Any]] = list(self.vital)
        if settings.unhealthy_configmaps:
            sink = ConfigMapSink(self.state)
            self.all.append(Reflector(api, CONFIG_MAPS, sink, silence=silence))

    async def synced(self) -> None:
        """Wait until everything vital was listed once."""
        await asyncio.gather(*(reflector.synced.wait() for reflector in self.vital))
