"""The parts of the extender put together, and what they do besides answering.

Everything is made here, from settings and an API server, so that a test runs what production runs.
"""

import asyncio
import socket
from typing import Any, Final

import structlog
from starlette.types import ASGIApp

from gpucore.gangplaces import Rules
from gpucore.units import NodeName
from gpuextender.api import ReadApi
from gpuextender.app import make_app
from gpuextender.bind import Bind
from gpuextender.binding import Writer
from gpuextender.events import Recorder
from gpuextender.filter import Filter
from gpuextender.following import Following
from gpuextender.gangs import Gangs
from gpuextender.gauges import LedgerGauges
from gpuextender.health import Health
from gpuextender.housekeeping import (
    expire_reservations,
    forget_after_lists,
    settle_memory,
)
from gpuextender.listeners import Listeners
from gpuextender.listings import Listings
from gpuextender.preempt import Preempt
from gpuextender.prioritize import Prioritize
from gpuextender.probes import probes_app
from gpuextender.requeue import Requeue
from gpuextender.roster import Roster
from gpuextender.settings import Settings
from gpuextender.topologyinspection import TopologyInspector
from gpuextender.verbs import Verbs
from gpuextender.webhook import Webhook
from gpukube.client import KubeClient

LIST_MARGIN: Final = 1.0
"""Seconds beyond the deadline of a bind."""

log = structlog.get_logger(__name__)


class Service:
    """One extender.

    Attributes:
        state: what it knows.
        health: whether it may decide.
        requeue: pods that it refused and that go back to their scheduler.
        listeners: its HTTP side.
    """

    def __init__(self, api: KubeClient, settings: Settings) -> None:
        self._settings = settings
        self._following = Following(api, settings)
        self.state = self._following.state
        self._recorder = Recorder(api, instance=socket.gethostname())
        self._grouping = settings.grouping()
        gangs = Gangs(self.state, Rules(settings.policy, self._grouping))
        self._roster = Roster(self.state.ledger)
        listings = Listings(self._roster)
        self.requeue = Requeue(self.state, api, gangs, self._roster)
        self._filter = Filter(self.state, gangs, self._roster, listings, self.requeue)
        self._prioritize = Prioritize(
            self.state,
            gangs,
            self._roster,
            listings,
            policy=settings.policy,
            grouping=self._grouping,
        )
        self._gauges = LedgerGauges(self.state.ledger, self.state.waiting_demands)
        writer = Writer(api, deadline=settings.bind_deadline)
        self._bind = Bind(
            self.state,
            api,
            self._recorder,
            writer,
            gangs,
            policy=settings.policy,
            grouping=self._grouping,
        )
        self.health = Health(self._following.vital, stale_after=settings.stale_after)
        hook = Webhook(self.state, self.health, scheduler=settings.webhook_scheduler)
        self.listeners = Listeners(
            settings,
            verbs=self._make_app(),
            probes=lambda: probes_app(self.health, self._gauges),
            admission=hook.app,
        )
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until :meth:`stop`, then finish what is in flight."""
        jobs = (
            *(informer.run() for informer in self._following.all),
            self._recorder.run(),
            self.requeue.run(),
            expire_reservations(self.state, self.health, ttl=self._settings.assume_ttl),
            forget_after_lists(
                self.state,
                self._following.relisted,
                seconds=self._settings.bind_deadline + LIST_MARGIN,
            ),
            settle_memory(self._loaded(), self._prioritize.warm),
        )
        tasks = [asyncio.create_task(job) for job in jobs]
        serving = [asyncio.create_task(server.run_here()) for server in self.listeners.all]
        try:
            await self._serve(serving, tasks)
            await self._bind.settle()
            await self._recorder.flush(seconds=1)
        finally:
            for task in (*serving, *tasks):
                task.cancel()
            await asyncio.gather(*serving, *tasks, return_exceptions=True)

    def stop(self) -> None:
        """Be unready at once, and gone after the drain."""
        if self._stopping is None:
            log.info("stopping", drain=self._settings.drain_seconds)
            self.health.draining = True
            self._stopping = asyncio.get_running_loop().create_task(self._drain())

    async def _loaded(self) -> None:
        """Wait until the cluster is read, and be ready for questions about it."""
        await self._following.synced()
        self.state.tell(self._touch, self.requeue.pod_came)
        self._roster.settle()
        self.health.loaded = True
        ledger = self.state.ledger
        log.info("cluster read", nodes=len(ledger.nodes()), claims=len(ledger.claims()))

    async def _serve(
        self, serving: list[asyncio.Task[None]], tasks: list[asyncio.Task[Any]]
    ) -> None:
        """Serve on all ports; a background job that ends is a bug that must not go unseen."""
        done, _ = await asyncio.wait([*serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        self.listeners.close()
        await asyncio.wait(serving)
        for task in (*serving, *done):
            task.result()

    async def _drain(self) -> None:
        await asyncio.sleep(self._settings.drain_seconds)
        self.listeners.close()

    def _touch(self, node: NodeName) -> None:
        number = self._roster.touch(node)
        self._filter.touch(number)
        self.requeue.node_changed(number)
        self._prioritize.touch(number)
        self._gauges.touch(node)

    def _make_app(self) -> ASGIApp:
        verbs = Verbs(
            filter_=self._filter,
            prioritize=self._prioritize,
            bind=self._bind,
            preempt=Preempt(self.state),
            health=self.health,
        )
        read = ReadApi(
            self.state, self.health, policy=self._settings.policy, grouping=self._grouping
        )
        return make_app(
            state=self.state,
            health=self.health,
            gauges=self._gauges,
            verbs=verbs,
            read=read,
            topology=TopologyInspector(self.state.ledger, self._grouping),
        )
