"""The parts of the extender put together, and what they do besides answering.

Everything is made here, from settings and an API server, so that a test runs what production runs.
"""

import asyncio
import gc
import socket
from time import time_ns
from typing import Any, Final

import structlog

from gpucore.units import NodeName
from gpucore.wire import lists
from gpucore.wire.names import UNHEALTHY_NAMESPACE
from gpuextender.app import make_app
from gpuextender.bind import Bind
from gpuextender.binding import Writer
from gpuextender.configmaps import decode_config_map_event, decode_config_maps
from gpuextender.events import Recorder
from gpuextender.filter import Filter
from gpuextender.health import Health
from gpuextender.kube import Api
from gpuextender.preempt import Preempt
from gpuextender.prioritize import Prioritize
from gpuextender.reflector import Collection, Reflector
from gpuextender.server import make_server
from gpuextender.settings import Settings
from gpuextender.state import State
from gpuextender.verbs import Verbs

SILENCE_PART: Final = 0.9
EXPIRE_PARTS: Final = 4
NANOSECONDS: Final = 1_000_000_000
_YOUNG_OBJECTS: Final = 50_000

log = structlog.get_logger(__name__)


class Service:
    """One extender.

    Attributes:
        state: what it knows.
        health: whether it may decide.
        server: its HTTP side.
    """

    def __init__(self, api: Api, settings: Settings) -> None:
        self._settings = settings
        self.state = State(settings.names, self._touch)
        self.recorder = Recorder(api, instance=socket.gethostname())
        self._filter = Filter(self.state)
        self._prioritize = Prioritize(self.state, policy=settings.policy)
        writer = Writer(api, deadline=settings.bind_deadline)
        self._bind = Bind(self.state, api, self.recorder, writer, policy=settings.policy)
        self._reflectors = self._make_reflectors(api)
        self.health = Health(self._reflectors[:2], stale_after=settings.stale_after)
        verbs = Verbs(
            filter_=self._filter,
            prioritize=self._prioritize,
            bind=self._bind,
            preempt=Preempt(self.state),
            health=self.health,
        )
        app = make_app(state=self.state, health=self.health, verbs=verbs)
        self.server = make_server(app, host=settings.host, port=settings.port)
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until :meth:`stop`, then finish what is in flight."""
        background = [reflector.run() for reflector in self._reflectors]
        background += [self.recorder.run(), self._expire(), self._settle_memory()]
        tasks = [asyncio.create_task(job) for job in background]
        try:
            await self._serve(tasks)
            await self._bind.settle()
            await self.recorder.flush(seconds=1)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        """Be unready at once, and gone after the drain."""
        if self._stopping is None:
            log.info("stopping", drain=self._settings.drain_seconds)
            self.health.draining = True
            self._stopping = asyncio.get_running_loop().create_task(self._drain())

    async def _serve(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Serve; a background job that ends is a bug that must not go unseen."""
        serving = asyncio.create_task(self.server.serve())
        done, _ = await asyncio.wait([serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        self.server.should_exit = True
        await serving
        for task in done:
            task.result()

    async def _drain(self) -> None:
        await asyncio.sleep(self._settings.drain_seconds)
        self.server.should_exit = True

    async def _expire(self) -> None:
        """Give back reservations that nothing told about, while the watch can be trusted."""
        ttl = self._settings.assume_ttl
        while True:
            await asyncio.sleep(ttl / EXPIRE_PARTS)
            if not self.health.obstacle():
                late = self.state.expire(now_ns=time_ns(), ttl_ns=int(ttl * NANOSECONDS))
                if late:
                    log.warning("reservations expired", uids=late)

    async def _settle_memory(self) -> None:
        """Keep the garbage collector from walking the whole cluster in the middle of a filter."""
        gc.disable()
        for reflector in self._reflectors[:2]:
            await reflector.synced.wait()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS, 50, 50)
        gc.enable()
        log.info("ready", nodes=len(self.state.ledger.nodes()))
        await asyncio.Event().wait()

    def _touch(self, node: NodeName) -> None:
        self._filter.touch(node)
        self._prioritize.touch(node)

    def _make_reflectors(self, api: Api) -> list[Reflector[Any]]:
        """Nodes and pods, which readiness rests on, then what may be missing."""
        silence = self._settings.stale_after * SILENCE_PART
        nodes = Collection("nodes", "/api/v1/nodes", lists.decode_nodes, lists.decode_node_event)
        pods = Collection("pods", "/api/v1/pods", lists.decode_pods, lists.decode_pod_event)
        maps = Collection(
            "configmaps",
            f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps",
            decode_config_maps,
            decode_config_map_event,
        )
        return [
            Reflector(api, nodes, self.state.nodes, silence=silence),
            Reflector(api, pods, self.state.pods, silence=silence),
            Reflector(api, maps, self.state.config_maps, silence=silence),
        ]
