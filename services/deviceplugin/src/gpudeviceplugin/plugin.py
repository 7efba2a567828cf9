"""All parts of the plugin, put together, with what one part tells another."""

import asyncio
from functools import partial
from typing import Self

import structlog

from gpucore.model import Rung
from gpucore.node.breaker import Breaker
from gpucore.node.devices import Resource
from gpucore.node.grant import GrantPolicy, shares_held
from gpucore.node.health import HealthBook, Verdict
from gpucore.node.holdings import Held
from gpucore.node.starts import Start, start_of
from gpucore.wire.names import PLUGIN, Names
from gpucore.wire.nodes import Node
from gpucore.wire.pods import Pod
from gpudeviceplugin.announce import DAEMON_FAILED, DAEMON_SERVES, ISOLATION, Announcer, Notice
from gpudeviceplugin.cards import Driver
from gpudeviceplugin.cdi import CdiFiles
from gpudeviceplugin.certificates import Certificates
from gpudeviceplugin.draining import Drain
from gpudeviceplugin.driver import PatientDriver
from gpudeviceplugin.endpoint import Endpoint
from gpudeviceplugin.events import Events
from gpudeviceplugin.followed import SILENCE_SECONDS, Relists, node_named, pods_of
from gpudeviceplugin.health import Health
from gpudeviceplugin.isolation import Isolation
from gpudeviceplugin.keeper import Keeper
from gpudeviceplugin.labels import LabelFollower
from gpudeviceplugin.limits import LimitWatch
from gpudeviceplugin.memory import keep_small
from gpudeviceplugin.mps.fleet import Fleet
from gpudeviceplugin.mps.supervisor import Phase, Timing
from gpudeviceplugin.nodewatch import NodeWatch
from gpudeviceplugin.podresources import PodResources
from gpudeviceplugin.publish import Publisher
from gpudeviceplugin.reconcile import Reconciler
from gpudeviceplugin.register import Registrar
from gpudeviceplugin.servicer import Servicer
from gpudeviceplugin.settings import Settings
from gpudeviceplugin.state import NodeState
from gpudeviceplugin.usage import MIB, UsageMeter, Watch
from gpudeviceplugin.web import Web
from gpukube.client import HttpKubeClient
from gpukube.informer import Informer

log = structlog.get_logger()


class Plugin:
    """One device plugin process."""

    def __init__(self, settings: Settings, driver: Driver, kube: HttpKubeClient) -> None:
        self._settings = settings
        self._kube = kube
        self.state = NodeState(_policy(settings))
        names = self.state.policy.names
        self._driver = PatientDriver(driver)
        self._events = Events(kube, settings.node_name)
        self._health = _health(settings, self._driver)
        self._node = NodeWatch(self.state.outlook_changed)
        self._fleet = _fleet(settings)
        self._isolation = Isolation(
            self.state, self._node, self._fleet, default=Rung.MPS if settings.mps else Rung.NONE
        )
        self._keeper = Keeper(
            self.state,
            self._driver,
            self._health,
            self._isolation,
            unit=settings.unit,
            reserve_mib=settings.reserve_mib,
            numa_hints=settings.numa_hints,
            every=settings.refresh_seconds,
            retry=settings.driver_retry_seconds,
        )
        kubelet = PodResources(settings.pod_resources_socket, names)
        self._reconciler = Reconciler(
            self.state, kubelet, kube, self._events, every=settings.reconcile_seconds
        )
        self._publisher = Publisher(self.state, self._node, kube, node_type=settings.node_type)
        self._draining = False
        self._drain = Drain(self.state, self._publisher, settle=settings.drain_seconds)
        self.registrar = Registrar(
            settings.kubelet_dir,
            self._endpoint,
            kubelet_restarted=self.state.kubelet_restarted,
            on_serving=self._serving,
        )
        self._cdi = CdiFiles(settings.cdi_dir, settings.cdi)
        self._labels = LabelFollower(self.state, self._node, self.registrar, self._cdi)
        self._announcer = Announcer(self.state, kube, self._events, settings.node_name)
        limits = LimitWatch(self.state, self._events, self._limits_replaced)
        self._usage = UsageMeter(self.state, self._driver, self._events, _watch(settings), limits)
        self._pods = self._pod_informer()
        self._nodes = self._node_informer()
        self._web = Web(self.missing, _certificates(settings))
        self.state.deliver = self._cdi.deliver
        self.state.on_held = self._held
        self.state.on_status = self._started
        self._health.on_verdicts = self._judged
        self._isolation.on_change = self._keeper.publish
        self._isolation.on_faults = self._isolation_faults
        if self._fleet is not None:
            self._fleet.on_change = self._daemon_changed

    @classmethod
    async def make(cls, settings: Settings, driver: Driver) -> Self:
        """Configure the client of the API server.

        Raises:
            ConfigError: no API server is configured.
        """
        kube = await HttpKubeClient.connect(settings.usable_kubeconfig, user_agent=PLUGIN)
        return cls(settings, driver, kube)

    async def run(self) -> None:
        """Do everything until cancelled; the first part that breaks ends all."""
        async with asyncio.TaskGroup() as group:
            for part in (
                self._answer,
                self._keeper.run,
                self._health.probe,
                self._health.listen,
                self._nodes.run,
                self._pods.run,
                self._reconciler.run,
                self._publisher.run,
                self._announcer.tell_pods,
                self._announcer.keep_map,
                self._events.run,
                self._usage.run,
                self._follow_labels,
                self._run_isolation,
                self.registrar.run,
                partial(keep_small, self.registrar.registered),
            ):
                group.create_task(part())

    async def drain(self) -> None:
        """Hold the node out of placement before :meth:`run` is cancelled."""
        self._draining = True
        await self._drain.run()

    def _serving(self, *, serving: bool) -> None:
        self.state.serve(serving=serving and not self._draining)

    async def close(self) -> None:
        """Let go of everything; kubelet keeps what it has handed out."""
        await self._web.stop()
        await self._kube.close()
        self._driver.close()

    def reread(self) -> None:
        """Enumerate the cards and register anew."""
        self._keeper.refresh()
        self.registrar.again()

    async def _answer(self) -> None:
        """Tell metrics and health; GPUs are served before there are certificates for it."""
        host = self._settings.listen_host
        port = await self._web.start(host, self._settings.listen_port)
        log.info("listening", host=host, port=port)
        await self._web.follow()

    async def _follow_labels(self) -> None:
        await self._labels.run(self._pods.synced, self._reconciler.synced, self.state.certain)

    def _limits_replaced(self) -> bool:
        """The runtime applies our environment over a pod's."""
        node = self._node.node
        return node is not None and self._cdi.certain_on(node)

    def _held(self, held: list[Held]) -> None:
        """Kubelet's account says which CDI files containers may need, and what nobody uses."""
        state = self.state
        if self._fleet is not None and not state.shares_on(Rung.MPS):
            self._fleet.unused()
        if state.policy.cdi:
            shares = shares_held(held, state.steering.tables, state.inventory, state.policy)
            self._cdi.sync(shares, state.initialized())

    def _judged(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            log.warning("card", uuid=verdict.uuid, healthy=verdict.healthy, why=verdict.why)
        self._keeper.publish()
        self._announcer.announce(verdicts)

    async def _run_isolation(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._isolation.run(self._reconciler.synced))
            if self._fleet is not None:
                group.create_task(self._fleet.run())

    def _daemon_changed(self, uuid: str, before: Phase, after: Phase, why: str) -> None:
        """Withdraw or offer the card at once; a first start is no news."""
        log.info("MPS daemon", card=uuid, phase=after, why=why)
        self._keeper.publish()
        if after is Phase.FAILED:
            words = f"takes no new pods: {why}"
            self._announcer.notify(Notice(DAEMON_FAILED, words, uuid=uuid))
        elif before is Phase.FAILED:
            words = "is served by its MPS daemon again"
            self._announcer.notify(Notice(DAEMON_SERVES, words, uuid=uuid, good=True))

    def _isolation_faults(self, faults: tuple[str, ...]) -> None:
        for fault in faults:
            log.warning("isolation", why=fault)
            self._announcer.notify(Notice(ISOLATION, fault))

    def _started(self, pod: Pod, raw: bytes) -> None:
        """What the container runtime tells about the GPUs of a pod counts like a probe."""
        cards = self.state.steering.cards_held(pod.namespace, pod.name)
        gpus = [gpu.uuid for gpu in self.state.inventory.gpus if gpu.index in cards]
        start = start_of(raw, gpus)
        if start is Start.FAILED:
            self._health.start_failed(cards, pod)
        elif start is Start.RUNS:
            self._health.started(cards)

    def _endpoint(self, resource: Resource) -> Endpoint:
        servicer = Servicer(
            self.state,
            resource,
            patience=self._settings.match_patience,
            numa_hints=self._settings.numa_hints,
        )
        name = resource.full_name(self.state.policy.names)
        return Endpoint(resource, name, servicer, self._settings.kubelet_dir)

    def _pod_informer(self) -> Informer[Pod]:
        collection = pods_of(self._settings.node_name)
        return Informer(
            self._kube, collection, self.state, silence=SILENCE_SECONDS, observer=Relists()
        )

    def _node_informer(self) -> Informer[Node]:
        collection = node_named(self._settings.node_name)
        return Informer(
            self._kube, collection, self._node, silence=SILENCE_SECONDS, observer=Relists()
        )

    def missing(self) -> str:
        """What keeps this node from serving GPUs; empty when nothing does."""
        checks = (
            (self._keeper.trouble, not self._keeper.trouble),
            ("the API server has not told of the pods yet", self._pods.synced.is_set()),
            ("kubelet has not taken the registration yet", self.registrar.registered.is_set()),
        )
        return next((words for words, well in checks if not well), "")


def _policy(settings: Settings) -> GrantPolicy:
    return GrantPolicy(
        names=Names(settings.resource_domain, settings.annotation_prefix),
        visible=settings.visible_devices,
        cdi_kind=settings.cdi_kind,
        mps=settings.mps_place,
        reserve_mib=settings.reserve_mib,
    )


def _certificates(settings: Settings) -> Certificates | None:
    folder = settings.tls_certificates
    return None if folder is None else Certificates(folder)


def _fleet(settings: Settings) -> Fleet | None:
    place = settings.mps_place
    if place is None:
        return None
    return Fleet(
        place,
        control=settings.mps_control,
        multi_user=settings.mps_multi_user,
        volume=settings.mps_shm,
        timing=Timing(check=settings.mps_check_seconds),
    )


def _watch(settings: Settings) -> Watch:
    return Watch(
        settings.host_proc,
        every=settings.usage_seconds,
        slack=settings.overuse_slack_mib * MIB,
    )


def _health(settings: Settings, driver: PatientDriver) -> Health:
    book = HealthBook(clean_probes=settings.clean_probes, ignored_xids=settings.ignored_xids)
    breaker = Breaker(limit=settings.breaker_failures)
    return Health(book, breaker, driver, every=settings.probe_seconds)
