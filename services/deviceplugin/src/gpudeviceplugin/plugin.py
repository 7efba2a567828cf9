"""The components of the plugin and the connections between them."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Self

import structlog

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy, on_known_gpus, shares_held
from gpucore.node.health.container_starts import Start, start_of
from gpucore.node.health.records import HealthStatus
from gpucore.wire.names import API_CLAIMS, PLUGIN, Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.cluster.events import Events
from gpudeviceplugin.cluster.health_events import (
    API_REFUSED,
    DAEMON_FAILED,
    DAEMON_SERVES,
    ISOLATION,
    UNRESPONSIVE,
    HealthEventRecorder,
    NodeEvent,
)
from gpudeviceplugin.cluster.informers import SILENCE_SECONDS, Relists, node_named, pods_of
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.cluster.publisher import Publisher
from gpudeviceplugin.dra.switch import ApiSwitch
from gpudeviceplugin.gpus.devices import Driver
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.gpus.health import health_of
from gpudeviceplugin.isolation.cdi import CdiFiles
from gpudeviceplugin.isolation.configured import configured_fleet, configured_limits
from gpudeviceplugin.isolation.limits import LimitWatch
from gpudeviceplugin.isolation.modes import Isolation
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.start_turns import StartTurns
from gpudeviceplugin.kubelet.draining import Drain
from gpudeviceplugin.kubelet.endpoint import Endpoint
from gpudeviceplugin.kubelet.pod_resources import PodResourcesClient
from gpudeviceplugin.kubelet.reconciler import Reconciler
from gpudeviceplugin.kubelet.registration import Registrar
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.kubelet.start_gate import gate_of
from gpudeviceplugin.memory import keep_small
from gpudeviceplugin.node.current_use import CurrentUse
from gpudeviceplugin.node.history_file import HistoryFile
from gpudeviceplugin.node.inventory_manager import InventoryManager
from gpudeviceplugin.node.node_labels import LabelFollower
from gpudeviceplugin.node.pod_starts import PodControllers
from gpudeviceplugin.node.recorder import UsageRecorder
from gpudeviceplugin.node.usage import UsageMeter, usage_settings
from gpudeviceplugin.node.verification import VerificationMetrics
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.state import NodeState
from gpudeviceplugin.web import Web
from gpukube.client import HttpKubeClient
from gpukube.server.certificates import CertificateWatcher
from gpukube.watch.informer import Informer

if TYPE_CHECKING:
    from gpudeviceplugin.dra.driver import ClaimDriver

log = structlog.get_logger()


class Plugin:
    """One device plugin process."""

    def __init__(
        self, settings: DevicePluginSettings, driver: Driver, kube: HttpKubeClient
    ) -> None:
        self._settings = settings
        self._kube = kube
        self.state = NodeState(_policy(settings))
        names = self.state.policy.names
        self._driver = PatientDriver(driver)
        self._events = Events(kube, settings.node_name)
        self._health = health_of(settings, self._driver)
        self._node = NodeWatch(self.state.outlook_changed)
        self._fleet = configured_fleet(settings)
        self._driver_limits = configured_limits(settings, self.state, self._driver, self._events)
        self._isolation = Isolation(
            self.state,
            self._node,
            self._fleet,
            default=settings.default_isolation,
            limits=self._driver_limits,
        )
        self._keeper = InventoryManager(
            self.state,
            self._driver,
            self._health,
            self._isolation,
            unit=settings.unit,
            reserve_mib=settings.reserve_mib,
            numa_hints=settings.numa_hints,
            interval_seconds=settings.refresh_seconds,
            retry_seconds=settings.driver_retry_seconds,
        )
        kubelet = PodResourcesClient(
            settings.pod_resources_socket, names, kubelet_restarted=self.state.kubelet_restarted
        )
        self._reconciler = Reconciler(
            self.state, kubelet, kube, self._events, interval_seconds=settings.reconcile_seconds
        )
        limits, read = self._driver_limits, self._reconciler.read
        turns = StartTurns(self.state) if settings.start_turns else None
        self._gate = gate_of(self.state, limits, turns, read, self._isolation)
        self._publisher = Publisher(self.state, self._node, kube, node_type=settings.node_type)
        self._draining = False
        self._drain = Drain(self.state, self._publisher, settle_seconds=settings.drain_seconds)
        self.registrar = Registrar(
            settings.kubelet_dir,
            self._endpoint,
            kubelet_restarted=self.state.kubelet_restarted,
            on_serving=self._serving,
        )
        self._cdi = CdiFiles(settings.cdi_dir, settings.cdi)
        self._labels = LabelFollower(self.state, self._node, self.registrar, self._cdi)
        self._health_events = HealthEventRecorder(
            self.state, kube, self._events, settings.node_name, self._node_uid
        )
        self._switch = ApiSwitch(
            self.state,
            self._node,
            kube,
            default=settings.api,
            enabled=settings.claims_enabled,
            on_refused=lambda why: self._health_events.notify(NodeEvent(API_REFUSED, why)),
        )
        self._claims = self._claim_driver() if settings.claims_enabled else None
        watch = LimitWatch(self.state, self._events, self._limits_replaced)
        use = CurrentUse(self.state, settings.node_name)
        self._usage = UsageMeter(
            self.state,
            self._driver,
            self._events,
            usage_settings(settings),
            watch,
            exact=limits.used if limits else None,
            use=use,
        )
        self._controllers = PodControllers()
        self._recorder = _recorder(settings, self.state, use, self._controllers)
        self._verification = VerificationMetrics(self.state, settings.pod_uid)
        self._pods = self._pod_informer()
        self._nodes = self._node_informer()
        documents = {"/usage": use.document}
        if self._recorder is not None:
            documents["/usage-history"] = self._recorder.document
        folder = settings.tls_certificates
        certificates = None if folder is None else CertificateWatcher(folder)
        self._web = Web(self.missing, certificates, documents)
        self._connect()

    def _connect(self) -> None:
        """Let the parts call each other."""
        self.state.deliver = self._cdi.deliver
        self.state.on_held = self._held
        self.state.on_status = self._started
        self.state.on_unknown_pod = self._pods.retry_now
        self._health.on_verdicts = self._judged
        self._keeper.on_unresponsive = self._unresponsive
        self._isolation.on_change = self._keeper.publish
        self._isolation.on_faults = self._isolation_faults
        if self._fleet is not None:
            self._fleet.on_change = self._daemon_changed
            self.state.stop_sweep = self._fleet.stop_sweep
        if self._driver_limits is not None:
            self._driver_limits.on_change = self._keeper.publish

    @classmethod
    async def make(cls, settings: DevicePluginSettings, driver: Driver) -> Self:
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
                self._health_events.tell_pods,
                self._keep_unhealthy_map,
                self._events.run,
                self._usage.run,
                self._verification.run,
                self._record,
                self._follow_labels,
                self._offer,
                self._run_isolation,
                self.registrar.run,
                partial(keep_small, self.registrar.registered),
            ):
                group.create_task(part())

    async def _offer(self) -> None:
        """Choose the API of the node, and be its DRA driver where claims are enabled."""
        if self._claims is None:
            await self._switch.run()
        else:
            await self._claims.run(self._switch.run)

    async def drain(self) -> None:
        """Hold the node out of placement before :meth:`run` is cancelled."""
        self._draining = True
        await self._drain.run()

    def _claim_driver(self) -> "ClaimDriver":
        from gpudeviceplugin.dra.driver import ClaimDriver  # noqa: PLC0415 - see that module

        enforce = None
        if self._driver_limits is not None:
            from gpudeviceplugin.isolation.claim_limits import ClaimLimits  # noqa: PLC0415

            enforce = ClaimLimits(self.state, self._driver_limits).enforce
        return ClaimDriver(self._settings, self.state, self._node, self._kube, enforce=enforce)

    def _serving(self, *, serving: bool) -> None:
        self.state.serve(serving=serving and not self._draining)

    async def close(self) -> None:
        """Close all connections; allocations of kubelet stay."""
        await self._web.stop()
        await self._kube.close()
        self._driver.close()

    def reread(self) -> None:
        """Enumerate the GPUs and register anew."""
        self._keeper.refresh()
        self.registrar.again()

    async def _answer(self) -> None:
        """Serve metrics and health; GPUs are served before certificates for this exist."""
        host = self._settings.listen_host
        port = await self._web.start(host, self._settings.listen_port)
        log.info("listening", host=host, port=port)
        await self._web.follow()

    async def _follow_labels(self) -> None:
        await self._labels.run(self._pods.synced, self._reconciler.synced, self.state.certain)

    async def _keep_unhealthy_map(self) -> None:
        """Write the ConfigMap of unhealthy GPUs where the settings request it."""
        if self._settings.unhealthy_configmap:
            await self._health_events.keep_map()

    async def _record(self) -> None:
        """Record memory in use, once the pods are listed."""
        if self._recorder is not None:
            await self._pods.synced.wait()
            await self._recorder.run()

    def _node_uid(self) -> str:
        """UID of the Node; empty while none is listed."""
        node = self._node.node
        return "" if node is None else node.uid

    def _limits_replaced(self) -> bool:
        """The runtime applies our environment over a pod's."""
        node = self._node.node
        return node is not None and self._cdi.certain_on(node)

    def _held(self, held: list[Held]) -> None:
        """Kubelet's allocations show which CDI files containers may need, and which none uses."""
        state, complete = self.state, self._accounts_for_all(held)
        if self._driver_limits is not None:
            self._driver_limits.look_soon()
        if self._fleet is not None and complete and not state.shares_behind_mps():
            self._fleet.unused()
        if state.policy.cdi:
            shares = shares_held(held, state.matcher.tables, state.inventory, state.policy)
            if complete:
                self._cdi.sync(shares, state.initialized())
            else:
                self._cdi.restore(shares)

    def _accounts_for_all(self, held: list[Held]) -> bool:
        """What is not on this account of kubelet, no container uses."""
        state = self.state
        known = bool(state.inventory.gpus) and on_known_gpus(held, state.matcher.tables)
        return known and not state.suspicious

    def _judged(self, verdicts: list[HealthStatus]) -> None:
        for verdict in verdicts:
            log.warning(
                "GPU health changed", uuid=verdict.uuid, healthy=verdict.healthy, why=verdict.why
            )
        self._keeper.publish()
        self._health_events.announce(verdicts)

    def _unresponsive(self, index: int, why: str) -> None:
        words = f"GPU {index} does not respond, and is not offered: {why}"
        self._health_events.notify(NodeEvent(UNRESPONSIVE, words))

    async def _run_isolation(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._isolation.run(self.state.certain))
            if self._fleet is not None:
                group.create_task(self._fleet.run())
            if self._driver_limits is not None:
                await self._pods.synced.wait()  # a look without the pods finds no limit missing
                group.create_task(self._driver_limits.run(self.state.certain))

    def _daemon_changed(
        self, uuid: str, before: MpsDaemonPhase, after: MpsDaemonPhase, why: str
    ) -> None:
        """Withdraw or offer the GPU at once; a first start changes nothing."""
        log.info("MPS daemon", gpu=uuid, phase=after, why=why)
        self._keeper.publish()
        if after is MpsDaemonPhase.FAILED:
            words = f"accepts no new pods: {why}"
            self._health_events.notify(NodeEvent(DAEMON_FAILED, words, uuid=uuid))
        elif before is MpsDaemonPhase.FAILED:
            words = "is served by its MPS daemon again"
            self._health_events.notify(NodeEvent(DAEMON_SERVES, words, uuid=uuid, good=True))

    def _isolation_faults(self, faults: tuple[str, ...]) -> None:
        for fault in faults:
            log.warning("isolation", why=fault)
            self._health_events.notify(NodeEvent(ISOLATION, fault))

    def _started(self, pod: Pod, raw: bytes) -> None:
        """A pod has changed; the start of a container, or its failure, probes the pod's GPUs."""
        if self._driver_limits is not None:
            self._driver_limits.seen(pod)
        if self._recorder is not None:
            self._controllers.seen(pod, raw)
            self._recorder.seen(pod, raw)
        if self._gate is not None:
            self._gate.seen(pod, raw)
        held = self.state.matcher.gpus_held(pod.namespace, pod.name)
        claimed = self.state.claims.gpus_of(pod)
        every = self.state.inventory.gpus
        gpus = [gpu for gpu in every if gpu.index in held or gpu.uuid in claimed]
        indexes = {gpu.index for gpu in gpus}
        start = start_of(raw, [gpu.uuid for gpu in gpus])
        if start is Start.FAILED:
            self._health.start_failed(indexes, pod)
        elif start is Start.RUNS:
            self._health.started(indexes)

    def _endpoint(self, resource: Resource) -> Endpoint:
        gate = self._gate if resource is Resource.MEM else None
        servicer = Servicer(
            self.state,
            resource,
            patience_seconds=self._settings.match_patience,
            numa_hints=self._settings.numa_hints,
            before_start=gate.wait if gate else None,
        )
        name = resource.full_name(self.state.policy.names)
        return Endpoint(resource, name, servicer, self._settings.kubelet_dir)

    def _pod_informer(self) -> Informer[Pod]:
        collection = pods_of(self._settings.node_name, self._listed)
        return Informer(
            self._kube, collection, self.state, silence=SILENCE_SECONDS, observer=Relists()
        )

    def _listed(self, page: bytes) -> None:
        if self._recorder is not None:
            self._controllers.listed(page)
        if self._gate is not None:
            self._gate.listed(page)

    def _node_informer(self) -> Informer[Node]:
        collection = node_named(self._settings.node_name)
        return Informer(
            self._kube, collection, self._node, silence=SILENCE_SECONDS, observer=Relists()
        )

    def missing(self) -> str:
        """Why this node does not serve GPUs; empty when it does."""
        checks = (
            (self._keeper.trouble, not self._keeper.trouble),
            ("the pods of the node are not listed yet", self._pods.synced.is_set()),
            ("kubelet has not accepted the registration yet", self._registered()),
            (
                self._switch.why or "it is not known yet by which API to offer the GPUs",
                bool(self.state.api),
            ),
            ("kubelet has not accepted the DRA driver yet", self._claims_registered()),
        )
        return next((words for words, well in checks if not well), "")

    def _registered(self) -> bool:
        """Kubelet accepted the registration, or the node offers claims and needs none."""
        return self.registrar.registered.is_set() or self.state.api == API_CLAIMS

    def _claims_registered(self) -> bool:
        """Kubelet accepted the DRA driver, or the node offers no claims and needs none."""
        registered = self._claims is not None and self._claims.registered
        return registered or self.state.api != API_CLAIMS


def _recorder(
    settings: DevicePluginSettings,
    state: NodeState,
    use: CurrentUse,
    controllers: PodControllers,
) -> UsageRecorder | None:
    """The recorder; ``None`` where the settings turn it off."""
    if not settings.record_seconds:
        return None
    place, node = settings.record_dir, settings.node_name
    return UsageRecorder(
        state,
        use,
        controllers,
        node=node,
        file=None if place is None else HistoryFile(place, node),
        interval_seconds=settings.record_seconds,
    )


def _policy(settings: DevicePluginSettings) -> GrantPolicy:
    return GrantPolicy(
        names=Names(settings.resource_domain, settings.annotation_prefix),
        visible=settings.visible_devices,
        cdi_kind=settings.cdi_kind,
        mps=settings.mps_place,
        reserve_mib=settings.reserve_mib,
    )
