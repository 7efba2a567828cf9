"""The webhook put together: beside the extender, or as a process that reviews pods and no more.

The chart runs it as a process of its own, because any pod may reach its port. That process serves
no endpoint of a scheduler, and follows the nodes and the pods that have no node: no review depends
on pods that run.
"""

from collections.abc import Collection, Coroutine, Iterator
from typing import Any

import structlog
from starlette.types import ASGIApp

from gpucore.accounting.node_info import NodeInfo
from gpuextender.claims.templates import ClaimTemplates
from gpuextender.health import Readiness
from gpuextender.housekeeping import settle_memory
from gpuextender.http.app import direct, probes_app
from gpuextender.http.server import Listeners
from gpuextender.informers import Informers
from gpuextender.runner import ServiceRunner, serve_until_signal
from gpuextender.settings import ExtenderSettings
from gpuextender.sizing.sizing import Sizing
from gpuextender.webhook import AdmissionWebhook
from gpukube.client import KubeClient

log = structlog.get_logger(__name__)


class WebhookParts:
    """What reviews pods, and the jobs that it needs."""

    def __init__(
        self, api: KubeClient, settings: ExtenderSettings, informers: Informers, health: Readiness
    ) -> None:
        self._state, self._health = informers.state, health
        self._templates: ClaimTemplates | None = None
        if settings.claims_convert:
            self._templates = ClaimTemplates(api, settings.claims_class)
            informers.pods.add(self._templates)
        self._sizing = Sizing(settings) if settings.sizing else None
        self._hook = AdmissionWebhook(
            self._state,
            health,
            profiles=settings.profiles,
            claims=settings.claim_requests(),
            sizer=None if self._sizing is None else self._sizing.followed_by(informers),
        )

    def app(self) -> ASGIApp:
        """The application of the webhook's port."""
        return direct(self._hook.handlers(), self._hook.app())

    def jobs(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs beside the reviews."""
        if self._templates is not None:
            yield self._templates.run()
        if self._sizing is not None:
            yield self._sizing.run(self._current_nodes)

    def _current_nodes(self) -> Collection[NodeInfo]:
        """State of all nodes; none while it is not current."""
        return () if self._health.obstacle() else self._state.ledger.nodes().values()


class WebhookService:
    """A process that reviews pods.

    Attributes:
        state: of its nodes, and of the pods without a node.
        health: whether it follows the cluster.
        listeners: its HTTP servers.
    """

    def __init__(self, api: KubeClient, settings: ExtenderSettings) -> None:
        self._informers = Informers(api, settings)
        self.state = self._informers.state
        self.health = Readiness(self._informers.vital, stale_after=settings.stale_after)
        self._parts = WebhookParts(api, settings, self._informers, self.health)
        self.listeners = Listeners(
            settings, probes=lambda: probes_app(self.health), admission=self._parts.app
        )
        self._runner = ServiceRunner(
            self.listeners, self.health, drain_seconds=settings.drain_seconds
        )

    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        jobs = (
            *(informer.run() for informer in self._informers.all),
            *self._parts.jobs(),
            settle_memory(self._loaded()),
        )
        await self._runner.run(jobs)

    def stop(self) -> None:
        """Be unready at once, and gone after the drain."""
        self._runner.stop()

    async def _loaded(self) -> None:
        """Wait until the cluster is read."""
        await self._informers.synced()
        self.state.add_event_handler(lambda _: None)
        self.health.loaded = True
        log.info("cluster read", nodes=len(self.state.ledger.nodes()))


async def serve(api: KubeClient, settings: ExtenderSettings) -> None:
    """Serve until a signal, then finish what is in flight."""
    await serve_until_signal(lambda: WebhookService(api, settings), settings)
