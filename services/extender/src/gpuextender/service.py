"""The parts of the extender put together, and the jobs that run beside the requests.

Everything is made here, from settings and an API server, so that a test runs what production runs.
"""

import socket
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Final

import structlog
from starlette.types import ASGIApp

from gpucore.claims.followed import FollowedClaims
from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName
from gpuextender.claims.counting import count_claims
from gpuextender.claims.nominator import ClaimNominator
from gpuextender.health import Readiness
from gpuextender.housekeeping import (
    TopologyTables,
    expire_reservations,
    forget_after_lists,
    settle_memory,
)
from gpuextender.http.app import direct, make_app, probes_app
from gpuextender.http.readapi import PodQuestions, ReadApi
from gpuextender.http.routes import SchedulerRoutes
from gpuextender.http.server import Listeners
from gpuextender.http.views import TopologyInspector
from gpuextender.informers import Informers
from gpuextender.metrics import LedgerMetrics
from gpuextender.mixhistory import MixHistory
from gpuextender.mixpublisher import CALLED_SECONDS, MixPublisher
from gpuextender.nomination.nominator import Nominator
from gpuextender.nomination.rounds import (
    Adoption,
    Leadership,
    NominationRounds,
    evaluates_nominated_first,
)
from gpuextender.nomination.writes import NominationWrites
from gpuextender.podmix import MixLearner
from gpuextender.runner import ServiceRunner, serve_until_signal
from gpuextender.scheduling.bind import Bind
from gpuextender.scheduling.binding import BindBatches, BindingWriter, Recorder
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.filter import BestNodes, Filter
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.preempt import Preempt
from gpuextender.scheduling.prioritize import Prioritize
from gpuextender.scheduling.requeue import Requeue
from gpuextender.settings import ExtenderSettings
from gpuextender.webhook import DEFAULT_SCHEDULER
from gpuextender.webhookservice import WebhookParts
from gpukube.client import KubeClient

BIND_MARGIN: Final = 1.0
"""Seconds beyond the deadline of a bind."""

log = structlog.get_logger(__name__)


class ExtenderService:
    """One extender.

    Attributes:
        state: ledger and pending pods.
        health: whether it may decide.
        requeue: refused pods to be sent back to their scheduler.
        listeners: its HTTP servers.
    """

    def __init__(self, api: KubeClient, settings: ExtenderSettings) -> None:
        self._settings, self._api = settings, api
        self._informers = Informers(api, settings)
        self.state = self._informers.state
        self._recorder = Recorder(api, instance=socket.gethostname())
        rules = self._rules = Rules(settings.policy, settings.grouping())
        gangs = self._gangs = Gangs(self.state, rules)
        self._cache = NodeCache(self.state.ledger)
        self.requeue = Requeue(self.state, api, gangs)
        best = BestNodes(
            self.state,
            self._cache,
            rules=rules,
            limit=settings.candidates,
        )
        self._filter = Filter(self.state, gangs, self._cache, self.requeue, best)
        self._prioritize = Prioritize(self.state, gangs, self._cache, rules=rules)
        self._warm = best.warm
        self._gauges = LedgerMetrics(
            self.state.ledger, self.state.waiting_requests, self.state.candidates
        )
        self._tables = TopologyTables(self.state.ledger, self._node_changed)
        batches = BindBatches(self.state.pending, lambda: self.state.filtered)
        writer = BindingWriter(api, deadline=settings.bind_deadline, batches=batches)
        self._bind = Bind(
            self.state,
            api,
            self._recorder,
            writer,
            gangs,
            rules=rules,
        )
        self.health = Readiness(self._informers.vital, stale_after=settings.stale_after)
        self._writes = NominationWrites(self.state, api, self.requeue.is_refused)
        self._nominator = Nominator(
            self.state,
            self.requeue,
            self._writes,
            gangs,
            rules=rules,
            after=settings.nominate_after if settings.nominate == "backlog" else None,
            profiles=settings.profiles,
            limit=settings.nominate_limit,
        )
        lease, host = settings.nominate_lease, socket.gethostname()
        leadership = Leadership(api, lease=lease, host=host, now=monotonic)
        self._writes.leads = leadership.leads
        self._rounds = NominationRounds(
            self._nominator,
            self.health,
            leadership,
            Adoption(self.state, api, self._nominator.adopt, monotonic),
        )
        self._for_claims = self._claim_nominator(leadership) if settings.claims else None
        with_claims = count_claims(self._informers, self._for_claims) if settings.claims else None
        self._webhook = WebhookParts(api, settings, self._informers, self.health)
        self.listeners = Listeners(
            settings,
            verbs=self._make_app(),
            probes=lambda: probes_app(self.health, self._gauges),
            admission=self._webhook.app,
        )
        self._runner = ServiceRunner(
            self.listeners, self.health, drain_seconds=settings.drain_seconds
        )
        self._nominates = False
        self._leadership = leadership
        self._publisher = MixPublisher(api, settings.mix_history, self._deciding)
        self._learner = MixLearner(
            self.state,
            self._host_changed,
            self._cache.refresh,
            with_claims=with_claims,
            on_use=self._publisher.use,
        )
        self._history = MixHistory(
            self.state.mix.history, api, settings.mix_history, leadership.leads
        )

    async def run(self) -> None:
        """Serve until :meth:`stop`, then finish what is in flight."""
        bind_seconds = self._settings.bind_deadline + BIND_MARGIN
        jobs = (
            *(informer.run() for informer in self._informers.all),
            self._recorder.run(),
            self.requeue.run(),
            self._gangs.release_ended(),
            self._tables.run(),
            self._learn(),
            self._keep_history(),
            self._publisher.run(),
            expire_reservations(
                self.state, self.health, ttl=max(self._settings.assume_ttl, bind_seconds)
            ),
            forget_after_lists(
                self.state, self._informers.relisted, self._bind.lost, seconds=bind_seconds
            ),
            self.health.list_after_standstill(),
            settle_memory(self._prepared()),
            *self._webhook.jobs(),
            *self._nominating(),
        )
        if self._settings.pod_groups:
            jobs = (*jobs, self._informers.follow_pod_groups())
        await self._runner.run(jobs, self._finish)

    async def _finish(self) -> None:
        """End the binds, and the events of them, that are under way."""
        await self._bind.settle()
        await self._recorder.flush(seconds=1)

    def _nominating(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """The jobs that nominate pending pods."""
        if self._settings.nominate == "off":
            return ()
        claims = () if self._for_claims is None else (self._nominate_for_claims(self._for_claims),)
        return self._writes.run(), self._rounds.run(), *claims

    def _claim_nominator(self, leadership: Leadership) -> ClaimNominator | None:
        settings, informers = self._settings, self._informers
        if settings.nominate == "off":
            return None
        found = ClaimNominator(
            self.state,
            informers.accounts,
            self._api,
            leadership.leads,
            rules=self._rules,
            limit=settings.nominate_limit,
            schedulers=(DEFAULT_SCHEDULER, *settings.profiles.names),
        )
        informers.pods.add(found)
        return found

    def _followed_claims(self) -> FollowedClaims | None:
        if not self._settings.claims:
            return None
        known = self._for_claims
        return FollowedClaims(
            self.state.ledger,
            self._informers.accounts,
            known.templates.items if known else None,
            known.classes.items if known else None,
        )

    async def _nominate_for_claims(self, nominator: ClaimNominator) -> None:
        await self._informers.listed_once()
        await nominator.run()

    def stop(self) -> None:
        """Be unready at once, and gone after the drain."""
        self._runner.stop()

    async def _prepared(self) -> None:
        await self._loaded()
        await self._warm()

    async def _loaded(self) -> None:
        """Wait until the cluster is read, and be ready for questions about it."""
        await self._informers.synced()
        self.state.add_event_handler(self._node_changed, self._member_added)
        if self._settings.nominate != "off" and await evaluates_nominated_first(self._api):
            self.state.filter_called = self._nominator.scheduler_called
            self._nominates = True
            self.requeue.on_refused = self._nominator.refused
        self.state.host_changed = self._host_changed
        await self._history.load()
        await self._learner.learn()
        self.health.loaded = True
        ledger = self.state.ledger
        log.info("cluster read", nodes=len(ledger.nodes()), allocations=len(ledger.allocations()))

    async def _learn(self) -> None:
        await self._informers.synced()
        await self._learner.run()

    async def _deciding(self) -> int | None:
        """The term in which this process decides; ``None`` while another one does.

        Without a Lease, that is the process which a scheduler calls.
        """
        if self._settings.nominate_lease:
            return await self._leadership.led_term()
        return 0 if self.state.called_within(CALLED_SECONDS) else None

    async def _keep_history(self) -> None:
        await self._informers.synced()
        await self._history.run()

    def _host_changed(self, node: NodeName) -> None:
        self._cache.host_changed(node)
        if self._nominates:
            self._candidate_changed(node)

    def _candidate_changed(self, node: NodeName) -> None:
        self._nominator.node_changed(node)
        if self._for_claims is not None:
            self._for_claims.node_changed(node)

    def _member_added(self) -> None:
        self._gangs.groups.changed()
        self.requeue.pod_came()

    def _node_changed(self, node: NodeName) -> None:
        self._gangs.groups.changed()
        self._cache.node_changed(node)
        self._filter.node_changed()
        self.requeue.node_changed(node)
        self._candidate_changed(node)
        self._gauges.node_changed(node)
        self._tables.node_changed(node)

    def _make_app(self) -> ASGIApp:
        preempt = Preempt(self.state)
        if self._settings.nominate != "off":
            preempt.fits_elsewhere = lambda one: (
                self._nominates and self._nominator.fits_elsewhere(one)
            )
        routes = SchedulerRoutes(
            filter_=self._filter,
            prioritize=self._prioritize,
            bind=self._bind,
            preempt=preempt,
            health=self.health,
        )
        policy = self._settings.cluster_policy()
        questions = PodQuestions(self.state, self._api, policy, self._followed_claims())
        app = make_app(
            state=self.state,
            health=self.health,
            gauges=self._gauges,
            scheduler=routes.router(),
            read=ReadApi(self.state, self.health, questions),
            topology=TopologyInspector(self.state.ledger, self._rules.grouping),
        )
        return direct(routes.handlers(), app)


async def serve(api: KubeClient, settings: ExtenderSettings) -> None:
    """Serve until a signal, then finish what is in flight."""
    await serve_until_signal(lambda: ExtenderService(api, settings), settings)
