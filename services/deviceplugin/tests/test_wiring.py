"""Calls between the parts of the plugin: the composition, without anything that runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from claimholding import prepared
from fakedriver import FakeDriver, t4
from msgspec import json
from msgspec.structs import replace

from gpucore.model import IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.health.records import HealthStatus
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.cluster.health_events import DAEMON_FAILED, DAEMON_SERVES, NodeEvent
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.plugin import Plugin
from gpudeviceplugin.settings import DevicePluginSettings
from gpukube.testing.scripted import ScriptedClient

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)
FIRST = t4(0).uuid
NO_DRIVER = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: error running "
    "prestart hook #0: exit status 1, stdout: , stderr: nvidia-container-cli: initialization "
    "error: nvml error: driver not loaded: unknown"
)


class Client(ScriptedClient):
    """A client that no part of the plugin uses yet."""

    closed = False

    async def close(self) -> None:
        """As that of the API server's client."""
        self.closed = True


class World:
    """A plugin whose parts note their calls, in order."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.effects: list[Any] = []
        self.settings = DevicePluginSettings(node_name="n1", cdi_dir=root, **settings)
        self.client = Client()
        self.plugin = Plugin(self.settings, FakeDriver(t4(0), t4(1)), self.client)  # type: ignore[arg-type]
        self.state = self.plugin.state
        self.state.equip(INVENTORY)

    def noted(self, owner: Any, *names: str) -> None:
        """Calls of these methods are noted, and not made."""
        for name in names:
            setattr(owner, name, self._noting(name))

    def _noting(self, name: str) -> Any:
        def note(*arguments: Any, **more: Any) -> None:
            self.effects.append((name, *arguments, *more.values()))

        return note

    def taken(self) -> list[Any]:
        """What was noted since the last time."""
        found, self.effects[:] = list(self.effects), []
        return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A plugin without MPS."""
    made = World(tmp_path)
    yield made
    await made.plugin.close()


@pytest.fixture
async def with_mps(tmp_path: Path) -> AsyncIterator[World]:
    """A plugin that runs daemons."""
    made = World(tmp_path, mps_root=str(tmp_path))
    yield made
    await made.plugin.close()


async def test_a_verdict_is_published_before_it_is_announced(world: World) -> None:
    """Who reads the event finds the GPU withdrawn."""
    world.noted(world.plugin._keeper, "publish")
    world.noted(world.plugin._health_events, "announce")
    verdicts = [HealthStatus(FIRST, healthy=False, why="XID 79")]
    world.plugin._health.on_verdicts(verdicts)
    assert world.taken() == [("publish",), ("announce", verdicts)]


async def test_a_daemon_that_fails_withdraws_its_gpu_and_is_reported(with_mps: World) -> None:
    """Its first start is no news, its return is."""
    plugin = with_mps.plugin
    with_mps.noted(plugin._keeper, "publish")
    with_mps.noted(plugin._health_events, "notify")
    assert plugin._fleet is not None
    changed = plugin._fleet.on_change
    changed(FIRST, MpsDaemonPhase.STARTING, MpsDaemonPhase.SERVING, "")
    assert with_mps.taken() == [("publish",)]
    changed(FIRST, MpsDaemonPhase.SERVING, MpsDaemonPhase.FAILED, "its MPS daemon fails: it hangs")
    words = "accepts no new pods: its MPS daemon fails: it hangs"
    assert with_mps.taken() == [
        ("publish",),
        ("notify", NodeEvent(DAEMON_FAILED, words, uuid=FIRST)),
    ]
    changed(FIRST, MpsDaemonPhase.FAILED, MpsDaemonPhase.SERVING, "")
    good = NodeEvent(DAEMON_SERVES, "is served by its MPS daemon again", uuid=FIRST, good=True)
    assert with_mps.taken() == [("publish",), ("notify", good)]


async def test_a_change_of_isolation_is_published_and_its_faults_are_reported(
    with_mps: World,
) -> None:
    """Each fault is a notice of the node."""
    plugin = with_mps.plugin
    with_mps.noted(plugin._health_events, "notify")
    plugin._isolation.on_faults(("one", "two"))
    assert with_mps.taken() == [
        ("notify", NodeEvent("GpuIsolation", words)) for words in ("one", "two")
    ]
    plugin._keeper._known = INVENTORY
    plugin._isolation.known = True
    with_mps.state.equip(replace(INVENTORY, gpus=()))
    plugin._isolation.on_change()
    assert len(with_mps.state.inventory.gpus) == 2


async def test_a_plugin_that_stops_is_not_published_as_serving_again(world: World) -> None:
    """Kubelet may take a registration while the plugin drains."""
    plugin = world.plugin
    plugin.registrar._on_serving(serving=True)
    assert world.state.serving
    seen: list[bool] = []

    async def drained() -> None:
        seen.append(world.state.serving)
        world.state.serve(serving=False)
        plugin.registrar._on_serving(serving=True)
        seen.append(world.state.serving)

    plugin._drain.run = drained  # type: ignore[method-assign]
    await plugin.drain()
    assert seen == [True, False]
    plugin.registrar._on_serving(serving=False)
    assert not world.state.serving


async def test_a_plugin_that_ends_lets_go_of_everything(world: World) -> None:
    """Its endpoint, the API server and the driver, in that order."""
    plugin = world.plugin
    world.noted(plugin._driver, "close")

    async def stop() -> None:
        world.effects.append(("stop", world.client.closed))

    plugin._web.stop = stop  # type: ignore[method-assign]
    await plugin.close()
    assert world.client.closed
    assert world.taken() == [("stop", False), ("close",)]


async def test_a_hangup_enumerates_and_registers_anew(world: World) -> None:
    """Both."""
    world.noted(world.plugin._keeper, "refresh")
    world.noted(world.plugin.registrar, "again")
    world.plugin.reread()
    assert world.taken() == [("refresh",), ("again",)]


async def test_a_kubelet_that_restarted_makes_the_state_suspicious(world: World) -> None:
    """The registrar is the one that notices."""
    world.state.on_replace(())
    world.state.sync_from_kubelet((), requested_at=0)
    assert not world.state.suspicious
    world.plugin.registrar._kubelet_restarted()
    assert world.state.suspicious


async def test_readiness_names_what_is_missing_first(world: World) -> None:
    """The driver, then the pods, then kubelet; a driver that goes away later is named again."""
    plugin = world.plugin
    assert plugin.missing() == "the driver has not responded yet"
    plugin._keeper.trouble = ""
    assert plugin.missing() == "the pods of the node are not listed yet"
    plugin._pods.synced.set()
    assert plugin.missing() == "kubelet has not accepted the registration yet"
    plugin.registrar.registered.set()
    assert plugin.missing() == "it is not known yet by which API to offer the GPUs"
    plugin.state.offer("devices")
    assert plugin.missing() == ""
    plugin.registrar.registered.clear()
    assert plugin.missing() == "kubelet has not accepted the registration yet"
    plugin._keeper.trouble = "no driver"
    assert plugin.missing() == "no driver"


def line(message: str = "", *, running: bool = False) -> bytes:
    """A line of the watch: the runtime's message about a container, or a container that runs."""
    failed = {"waiting": {"reason": "RunContainerError", "message": message}}
    state = {"running": {}} if running else failed
    return json.encode({"object": {"status": {"containerStatuses": [{"state": state}]}}})


async def test_the_runtimes_failures_are_held_against_the_gpus_of_the_pod(world: World) -> None:
    """And a container that runs clears them; other messages are no sign."""
    world.noted(world.plugin._health, "start_failed", "started")
    pod = Pod(PodUid("uid-p"), "team", "p", NodeName("n1"), phase="Pending")
    world.state.on_replace((pod,))
    ids = world.state.matcher.tables[Resource.MEM].ids[GpuIndex(1)][:2]
    world.state.sync_from_kubelet([Held("team", "p", {"c0": {Resource.MEM: ids}})], requested_at=0)
    for text in (line(NO_DRIVER), line("no such file"), line(running=True)):
        world.state.on_update(pod, text)
    assert world.taken() == [("start_failed", {1}, pod), ("started", {1})]


async def test_the_runtimes_failures_are_held_against_the_gpus_of_claims_too(world: World) -> None:
    """Controllers would create pods with claims for such a GPU without end."""
    world.noted(world.plugin._health, "start_failed", "started")
    world.state.claims.put(prepared("c", INVENTORY.gpus[1], 2))
    pod = Pod(PodUid("uid-p"), "team", "p", NodeName("n1"), phase="Pending", claims=("c",))
    for text in (line(NO_DRIVER), line(running=True)):
        world.state.on_update(pod, text)
    assert world.taken() == [("start_failed", {1}, pod), ("started", {1})]


async def test_shared_memory_is_swept_while_no_pod_has_a_share_with_mps(with_mps: World) -> None:
    """A share of a GPU without MPS is no reason to keep it; before all pods are known, it stays."""
    assert with_mps.plugin._fleet is not None
    with_mps.noted(with_mps.plugin._fleet, "unused")
    first, second = INVENTORY.gpus
    with_mps.state.equip(
        replace(INVENTORY, gpus=(first, replace(second, isolation=IsolationMode.MPS)))
    )
    with_mps.state.sync_from_kubelet([], requested_at=0)
    assert with_mps.taken() == []
    with_mps.state.on_replace(())
    for gpu, swept in ((second, []), (first, [("unused",)])):
        ids = with_mps.state.matcher.tables[Resource.MEM].ids[gpu.index][:2]
        held = [Held("team", "p", {"c0": {Resource.MEM: ids}})]
        with_mps.state.sync_from_kubelet(held, requested_at=0)
        assert with_mps.taken() == swept


async def test_cdi_files_follow_kubelets_account_where_the_node_uses_them(world: World) -> None:
    """They are synced with the devices of what is held, and with what init containers had."""
    world.state.on_replace(())
    world.noted(world.plugin._cdi, "sync")
    ids = world.state.matcher.tables[Resource.MEM].ids[GpuIndex(1)][:2]
    held = [Held("team", "p", {"c0": {Resource.MEM: ids}})]
    world.state.sync_from_kubelet(held, requested_at=0)
    assert world.taken() == []
    world.state.follow(cgpu_disable=False, oversell=1, cdi=True)
    ((name, shares, initialized),) = world.taken()
    assert (name, len(shares), initialized) == ("sync", 1, [])


async def test_what_containers_use_stays_while_an_account_is_incomplete(
    with_mps: World,
) -> None:
    """The plugin or kubelet has just started, or no GPU is known, or not the one of a device."""
    state, plugin = with_mps.state, with_mps.plugin
    assert plugin._fleet is not None
    state.follow(cgpu_disable=False, oversell=1, cdi=True)
    with_mps.noted(plugin._cdi, "sync", "restore")
    with_mps.noted(plugin._fleet, "unused")

    def calls() -> list[str]:
        return [call[0] for call in with_mps.taken()]

    ids = state.matcher.tables[Resource.MEM].ids[GpuIndex(1)][:2]
    held = [Held("team", "p", {"c0": {Resource.MEM: ids}})]
    state.sync_from_kubelet(held, requested_at=0)
    assert calls() == ["restore"]
    state.on_replace(())
    state.sync_from_kubelet(held, requested_at=0)
    assert calls() == ["unused", "sync"]
    for gpus in ((), INVENTORY.gpus[:1]):
        state.equip(replace(INVENTORY, gpus=gpus))
        assert calls() == ["restore"]
    state.equip(INVENTORY)
    assert calls() == ["unused", "sync"]
    state.sync_from_kubelet([], requested_at=0)
    assert calls() == ["unused", "sync"]
    state.equip(replace(INVENTORY, gpus=()))
    assert calls() == ["restore"]


async def test_a_grant_ends_a_sweep_of_the_shared_memory(with_mps: World) -> None:
    """The state waits for the fleet; without MPS there is nothing to wait for."""
    assert with_mps.plugin._fleet is not None
    assert with_mps.state.stop_sweep == with_mps.plugin._fleet.stop_sweep


async def test_a_grant_writes_its_cdi_file(world: World, tmp_path: Path) -> None:
    """The state delivers through the files of the plugin."""
    assert world.state.deliver == world.plugin._cdi.deliver


async def test_limits_are_replaced_only_on_a_node_that_surely_applies_cdi(tmp_path: Path) -> None:
    """Without a Node nothing is sure."""
    world = World(tmp_path, cdi="on")
    assert not world.plugin._limits_replaced()
    world.plugin._node.on_update(Node(NodeName("n1")), b"")
    assert world.plugin._limits_replaced()
    await world.plugin.close()


async def test_settings_reach_the_parts_that_they_are_about(tmp_path: Path) -> None:
    """Each number has its own part; a mix-up of two would show."""
    world = World(
        tmp_path,
        mps=True,
        mps_root=str(tmp_path),
        mps_check_seconds=1.5,
        probe_seconds=2.5,
        refresh_seconds=3.5,
        driver_retry_seconds=4.5,
        reconcile_seconds=5.5,
        usage_seconds=6.5,
        drain_seconds=7.5,
        match_patience=0.75,
        clean_probes=8,
        breaker_failures=9,
        reserve_mib=10,
        overuse_slack_mib=11,
        memory_unit="256MiB",
        numa_hints=True,
        node_type="own",
        ignored_xids=(99,),
    )
    plugin = world.plugin
    assert plugin._health._interval_seconds == 2.5
    assert (plugin._keeper._interval_seconds, plugin._keeper._retry_seconds) == (3.5, 4.5)
    assert plugin._reconciler._interval_seconds == 5.5
    assert plugin._usage._settings.interval_seconds == 6.5
    assert plugin._usage._settings.slack_bytes == 11 * 1024 * 1024
    assert plugin._drain._settle_seconds == 7.5
    assert plugin._publisher._node_type == "own"
    assert plugin._health._book._clean_probes == 8
    assert plugin._health._book._ignored_xids == {99}
    assert plugin._health._breaker._limit == 9
    assert (plugin._keeper._reserve_mib, plugin.state.policy.reserve_mib) == (10, 10)
    assert (plugin._keeper._unit.mib, plugin._keeper._numa_hints) == (256, True)
    assert plugin._isolation._default is IsolationMode.MPS
    assert plugin._fleet is not None
    assert plugin._fleet._timing is not None
    assert plugin._fleet._timing.check == 1.5
    servicer = plugin._endpoint(Resource.CORE)._servicer
    assert (servicer._patience_seconds, servicer._numa_hints) == (0.75, True)
    await plugin.close()


async def test_a_share_and_its_socket_have_the_name_of_the_resource(world: World) -> None:
    """Kubelet is notified of the full name; the socket is short."""
    endpoint = world.plugin._endpoint(Resource.CORE)
    assert endpoint._full_name == "aliyun.com/gpu-core.percentage"
    assert endpoint.socket.match(f"{world.settings.kubelet_dir}/gpushare-gpu-core-*.sock")


async def test_the_first_part_that_breaks_ends_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin without one of its parts would look well and serve nothing."""
    plugin = world.plugin
    ended: list[str] = []

    async def lasting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("one")

    async def broken(*_: Any) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("broken")

    owners = (
        (plugin, "_answer"),
        (plugin._keeper, "run"),
        (plugin._health, "probe"),
        (plugin._health, "listen"),
        (plugin._nodes, "run"),
        (plugin._pods, "run"),
        (plugin._reconciler, "run"),
        (plugin._publisher, "run"),
        (plugin._health_events, "tell_pods"),
        (plugin, "_keep_unhealthy_map"),
        (plugin._events, "run"),
        (plugin._usage, "run"),
        (plugin, "_follow_labels"),
        (plugin, "_run_isolation"),
    )
    for owner, name in owners:
        setattr(owner, name, lasting)
    small: list[Any] = []

    async def keep_small(started: asyncio.Event) -> None:
        small.append(started)
        await lasting()

    monkeypatch.setattr("gpudeviceplugin.plugin.keep_small", keep_small)
    plugin.registrar.run = broken  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup) as failure:
        async with asyncio.timeout(60):
            await plugin.run()
    assert failure.group_contains(RuntimeError, match="broken")
    assert len(ended) == len(owners) + 1
    assert small == [plugin.registrar.registered], "memory is given back after the start"


@pytest.mark.parametrize("requested", [False, True])
async def test_the_list_of_unhealthy_gpus_is_kept_where_it_is_requested(
    tmp_path: Path, *, requested: bool
) -> None:
    """By default the plugin sends no request for the ConfigMap: its account has no right to."""
    plugin = World(tmp_path, unhealthy_configmap=requested).plugin
    kept: list[bool] = []

    async def keep_map() -> None:
        kept.append(True)

    plugin._health_events.keep_map = keep_map  # type: ignore[method-assign]
    await plugin._keep_unhealthy_map()
    assert kept == [True] * requested
    await plugin.close()


async def test_isolation_waits_for_kubelets_account_and_runs_beside_its_daemons(
    with_mps: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before pods and their devices are known, no GPU counts as empty."""
    plugin = with_mps.plugin
    started: list[Any] = []

    async def run(truth: asyncio.Event | None = None) -> None:
        started.append(truth)

    monkeypatch.setattr(plugin._isolation, "run", run)
    monkeypatch.setattr(plugin._fleet, "run", run)
    await plugin._run_isolation()
    assert started == [plugin.state.certain, None]


async def test_pods_come_by_kubelets_selector_and_the_node_by_its_name(world: World) -> None:
    """Each informer has its own handler."""
    plugin = world.plugin
    assert plugin._pods._collection.params == {"fieldSelector": "spec.nodeName=n1"}
    assert plugin._nodes._collection.params == {"fieldSelector": "metadata.name=n1"}
    silences = {plugin._pods._silence, plugin._nodes._silence}
    assert min(silences) > 300, "an old API server sends bookmarks only when something happens"
    assert (plugin._pods._handler, plugin._nodes._handler) == (plugin.state, plugin._node)


async def test_labels_wait_for_the_pods_for_kubelets_account_and_for_its_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted plugin must not take pods that have their devices for pods that wait."""
    waited: list[Any] = []

    async def run(*known: asyncio.Event) -> None:
        waited.extend(known)

    monkeypatch.setattr(world.plugin._labels, "run", run)
    await world.plugin._follow_labels()
    plugin = world.plugin
    assert waited == [plugin._pods.synced, plugin._reconciler.synced, plugin.state.certain]
