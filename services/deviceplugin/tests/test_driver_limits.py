"""Isolation mode driver: the whole plugin over the mock NVML, a fake kubelet and a cgroup tree."""

import asyncio
import ctypes
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakecluster.objects import planned
from fakedriver import FakeDriver, hardware_of, t4
from prometheus_client import REGISTRY
from stage import SECONDS, Stage

from gpucore.node.isolation.driver_limits import NO_LIMIT, MemoryLimit
from gpudeviceplugin.gpus.nvml import Nvml
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from mocknvml import build

pytestmark = pytest.mark.slow

DRIVER = {"gpushare/isolation": "driver"}
UNITS = 79
SHARE = MemoryLimit(3 << 30, 3 << 30)


class Quiet(Nvml):
    """A driver without error events, so no call waits in the library while it is closed."""

    def next_xid(self, timeout_ms: int) -> None:
        time.sleep(min(timeout_ms, 50) / 1000)


class Node:
    """A node with GPUs of the mock NVML, and the cgroups that its kubelet makes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cgroups = root / "cgroup"
        (self.cgroups / "kubepods.slice").mkdir(parents=True)
        (self.cgroups / "cgroup.controllers").touch()
        self.tree = CgroupTree(self.cgroups, "")
        self.nvml = Quiet(self.tree.pods)

    def stage(self, driver: Any = None, **settings: Any) -> Stage:
        """The plugin on this node, with limits of the driver."""
        given = {
            "driver_limits": True,
            "driver_limits_seconds": 0.1,
            "usage_seconds": 0.1,
            **settings,
        }
        return Stage(self.root, driver or self.nvml, cgroup_root=self.cgroups, **given)

    def cgroup(self, stage: Stage, name: str) -> str:
        """Where the pod's cgroup is."""
        uid = stage.cluster.pods.objects["default", name]["metadata"]["uid"]
        return str(self.cgroups / f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice")

    def makes_cgroups(self, stage: Stage) -> None:
        """Kubelet makes the cgroup of each pod between its admission and its start."""

        async def gap() -> None:
            self.make_cgroups(stage)

        stage.kubelet.manager.on_gap = gap

    def make_cgroups(self, stage: Stage) -> None:
        for _, name in stage.cluster.pods.objects:
            Path(self.cgroup(stage, name)).mkdir(exist_ok=True)

    def in_force(self, gpu: int, cgroup: str) -> MemoryLimit:
        return self.nvml.memory_limit(hardware_of(self.nvml).gpus[gpu].uuid, cgroup)

    def happens(self, line: str) -> None:
        """Add a line to the state file, as another program would."""
        with (self.root / "nvml.state").open("a") as file:
            file.write(f"{line}\n")


@pytest.fixture
def machine() -> str:
    """Name of the machine of the mock NVML."""
    return "h100-r615-2x80"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> Iterator[Node]:
    """The library in this process."""
    ctypes.CDLL(str(build.ensure() / build.LIBRARY))
    monkeypatch.setenv("GPUSHARE_MOCK_NVML_MACHINE", str(build.machine(machine)))
    monkeypatch.setenv("GPUSHARE_MOCK_NVML_STATE", str(tmp_path / "nvml.state"))
    made = Node(tmp_path)
    yield made
    made.nvml.close()


@pytest.fixture
def starts() -> int:
    """Number of random pods; `make test-all` sets a larger one."""
    return int(os.environ.get("GPUSHARE_RANDOM_PODS", "200"))


class Started:
    """The limits of all pods that run, read at each start of a pod.

    Attributes:
        wanted: by pod, the GPUs with their units.
        missing: pods that ran without the limit of their share.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.count = 0
        self.wanted: dict[str, Counter[int]] = {}
        self.missing: list[str] = []

    def follow(self, stage: Stage) -> None:
        """Look at every start from now on."""
        start = stage.kubelet._start
        gpus = {gpu.uuid: gpu.index for gpu in hardware_of(self.node.nvml).gpus}

        def observed(pod: dict[str, Any]) -> None:
            name, self.count = pod["metadata"]["name"], self.count + 1
            rows = stage.kubelet.devices(name).values()
            ids = [one.split("-_-", maxsplit=1)[0] for row in rows for one in row]
            self.wanted[name] = Counter(gpus[uuid] for uuid in ids)
            self._look(stage)
            start(pod)

        stage.kubelet._start = observed  # type: ignore[method-assign]
        stage.kubelet.on_sync = lambda _: self.node.make_cgroups(stage)

    def _look(self, stage: Stage) -> None:
        for name, gpus in self.wanted.items():
            cgroup = self.node.cgroup(stage, name)
            for gpu, units in gpus.items():
                limit = MemoryLimit(units << 30, units << 30)
                if self.node.in_force(gpu, cgroup) != limit:
                    self.missing.append(name)


def impatient(stage: Stage) -> None:
    """A start is refused after a moment."""
    assert stage.plugin is not None
    assert stage.plugin._gate is not None
    stage.plugin._gate._seconds = 0.2


def modes(stage: Stage) -> list[Any]:
    return [mode for (mode,) in stage.gpus("mode")]


def messages(stage: Stage, reason: str) -> list[str]:
    events = stage.cluster.stores["events"].objects.values()
    return [each["message"] for each in events if each["reason"] == reason]


def metric(name: str, gpu: int) -> float | None:
    labels = {"gpu": str(gpu), "exported_namespace": "default", "exported_pod": name}
    return REGISTRY.get_sample_value("gpushare_pod_limit_in_force", labels)


async def running(stage: Stage, node: Node, name: str, gpu: int) -> str:
    """A pod that demands the mode was admitted on a GPU and its cgroup is there."""
    node.makes_cgroups(stage)
    stage.create(name, {"gpu-mem": 3}, annotations=planned(gpu, 3, dev=UNITS) | DRIVER)
    await stage.admitted(name)
    node.make_cgroups(stage)  # kubelet has made it by then, whenever it paused
    return node.cgroup(stage, name)


async def test_a_label_turns_it_on_and_a_share_is_limited_by_the_driver(node: Node) -> None:
    """Mode published, pod admitted, limit set on its GPU alone, and taken off with the pod."""
    async with node.stage() as stage:
        await stage.offered(2 * UNITS)
        await stage.eventually(lambda: modes(stage) == ["none", "none"])
        stage.label(gpushare="true", **DRIVER)
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        cgroup = await running(stage, node, "p", 1)
        await stage.eventually(lambda: node.in_force(1, cgroup) == SHARE, "the limit")
        assert node.in_force(0, cgroup) == NO_LIMIT
        await stage.eventually(lambda: metric("p", 1) == 1, "the metric")
        node.happens(f"gpu 1 memory_used 12345 {cgroup}")
        labels = {"gpu": "1", "exported_namespace": "default", "exported_pod": "p"}
        sample = partial(REGISTRY.get_sample_value, "gpushare_pod_used_bytes", labels)
        await stage.eventually(lambda: sample() == 12345, "the driver's figure of its memory")
        stage.cluster.pods.delete("default", "p")
        await stage.eventually(lambda: node.in_force(1, cgroup) == NO_LIMIT, "no limit")
        assert messages(stage, "GpuLimitNotInForce") == []


async def test_a_container_starts_only_once_its_limit_is_in_force(node: Node) -> None:
    """While the cgroup is missing, kubelet is refused with a sentence; then the start succeeds."""
    async with node.stage(isolation="driver") as stage:
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        impatient(stage)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3, dev=UNITS) | DRIVER)
        await stage.kubelet.wait_for(lambda: "p" in stage.kubelet.refused_starts)
        assert stage.kubelet.refused_starts["p"].endswith(
            "the driver's memory limit of the pod is not in force: "
            "the cgroup of pod default/p was not found on the node"
        )
        assert not stage.kubelet.admitted("p")
        node.make_cgroups(stage)
        await stage.admitted("p")
        assert node.in_force(1, node.cgroup(stage, "p")) == SHARE


async def test_no_limit_is_missing_when_random_pods_start(node: Node, starts: int) -> None:
    """Whenever a first container starts, all pods that run have the limits of their shares."""
    dice, started = random.Random(20), Started(node)
    async with node.stage(isolation="driver", driver_limits_seconds=0.05) as stage:
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        started.follow(stage)
        live: list[str] = []
        for number in range(starts):
            name, units, gpu = f"p{number}", dice.randint(1, 8), dice.randrange(2)
            containers = [{"gpu-mem": units}] * dice.choice([1, 1, 2])
            total = units * len(containers)
            plan = planned(gpu, total, dev=UNITS) if dice.random() < 0.8 else {}
            stage.create(name, *containers, annotations=plan)
            live.append(name)
            if len(live) > 6:
                gone = live.pop(dice.randrange(6))
                await stage.admitted(gone)
                del started.wanted[gone]
                stage.cluster.pods.delete("default", gone)
        for name in live:
            await stage.admitted(name)
    assert (started.count, started.missing) == (starts, [])


async def test_a_pod_may_use_more_than_it_requests_where_the_driver_limits(node: Node) -> None:
    """Soft limit the request, hard limit the annotation; refused on a GPU without the mode."""
    burst = {"gpushare/memory-limit": "12"}
    async with node.stage() as stage:
        stage.label(gpushare="true", **DRIVER)
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        node.makes_cgroups(stage)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3, dev=UNITS) | burst)
        await stage.admitted("p")
        assert node.in_force(1, node.cgroup(stage, "p")) == MemoryLimit(3 << 30, 12 << 30)
        assert "NVIDIA_GPU_MEMORY_LIMIT" not in stage.kubelet.envs("p")
        stage.cluster.pods.delete("default", "p")
        stage.label(gpushare="true")
        await stage.eventually(lambda: modes(stage) == ["none", "none"])
        stage.create("q", {"gpu-mem": 3}, annotations=planned(1, 3, dev=UNITS) | burst)
        why = await stage.rejected("q")
        assert "demands driver (its annotation gpushare/memory-limit needs it)" in why


async def test_a_restarted_plugin_restores_a_limit(node: Node) -> None:
    """Limits that were removed while no plugin ran."""
    async with node.stage(isolation="driver") as stage:
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        cgroup = await running(stage, node, "p", 0)
        await stage.eventually(lambda: node.in_force(0, cgroup) == SHARE, "the limit")
        await stage.stop_plugin()
        node.happens(f"gpu 0 memory_limit {NO_LIMIT.soft} {NO_LIMIT.hard} {cgroup}")
        node.nvml.open()
        assert node.in_force(0, cgroup) == NO_LIMIT
        await stage.start_plugin()
        await stage.eventually(lambda: node.in_force(0, cgroup) == SHARE, "the limit again")


async def test_a_limit_that_somebody_takes_off_is_reported_and_set_again(node: Node) -> None:
    """The event names the GPU; the mode is back once the limit is found in force."""
    async with node.stage(isolation="driver") as stage:
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        cgroup = await running(stage, node, "p", 0)
        await stage.eventually(lambda: metric("p", 0) == 1, "the limit")
        node.happens(f"gpu 0 memory_limit 0 5 {cgroup}")
        await stage.eventually(lambda: messages(stage, "GpuLimitNotInForce"))
        (message,) = messages(stage, "GpuLimitNotInForce")
        assert message.startswith("the driver's memory limit of its share of GPU 0 is off: ")
        await stage.eventually(lambda: node.in_force(0, cgroup) == SHARE, "the limit again")
        await stage.eventually(lambda: metric("p", 0) == 1 and modes(stage) == ["driver"] * 2)


async def test_a_gpu_whose_limits_do_not_hold_is_offered_without_the_mode(node: Node) -> None:
    """Pods that demand it are refused there; others wait to start, and the other GPU has it."""
    driver = FakeDriver(t4(0), t4(1))
    driver.driver_version = "615.36.01"
    driver.answers_limits = True
    async with node.stage(driver, isolation="driver") as stage:
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        driver.refuses_limits = True
        node.makes_cgroups(stage)
        impatient(stage)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(0, 3) | DRIVER)
        await stage.kubelet.wait_for(lambda: "p" in stage.kubelet.refused_starts)
        cgroup = node.cgroup(stage, "p")
        await stage.eventually(lambda: modes(stage) == ["none", "driver"])
        assert metric("p", 0) == 0
        stage.create("q", {"gpu-mem": 3}, annotations=planned(0, 3) | DRIVER)
        await stage.kubelet.wait_for(lambda: "q" in stage.kubelet.refused_starts)
        assert stage.gpus_of("q") == {1}
        await stage.eventually(lambda: modes(stage) == ["none", "none"])
        stage.create("r", {"gpu-mem": 3}, annotations=planned(0, 3) | DRIVER)
        assert "isolation" in await stage.rejected("r")
        stage.create("s", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.kubelet.wait_for(lambda: "s" in stage.kubelet.refused_starts)
        assert "Insufficient Permissions" in stage.kubelet.refused_starts["s"]
        assert not any(map(stage.kubelet.admitted, "pqs"))
        driver.refuses_limits = False
        for name in "pqs":
            await stage.admitted(name)
        await stage.eventually(lambda: modes(stage) == ["driver", "driver"])
        assert driver.limits[t4(0).uuid, cgroup] == SHARE


@pytest.mark.parametrize("machine", ["a100-pcie-4x40"])
async def test_an_old_driver_refuses_the_mode(node: Node) -> None:
    """The GPUs stay without it, the node's event states why, and a pod that demands it fails."""
    async with node.stage() as stage:
        await stage.offered(4 * 39)
        stage.label(gpushare="true", **DRIVER)
        await stage.eventually(lambda: len(messages(stage, "GpuIsolation")) == 4)
        why = "cannot use isolation mode driver: driver 535.161.08 is older than 615"
        assert sorted(messages(stage, "GpuIsolation")) == [f"GPU {gpu} {why}" for gpu in range(4)]
        await stage.eventually(lambda: modes(stage) == ["none"] * 4)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(0, 3, dev=39) | DRIVER)
        assert "isolation" in await stage.rejected("p")


async def test_with_default_settings_the_label_changes_nothing(node: Node) -> None:
    """No GPU is queried for limits, and none has the mode."""
    async with node.stage(driver_limits=False) as stage:
        stage.label(gpushare="true", **DRIVER)
        await stage.offered(2 * UNITS)
        node.makes_cgroups(stage)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3, dev=UNITS))
        await stage.admitted("p")
        cgroup = node.cgroup(stage, "p")
        assert stage.plugin is not None
        async with asyncio.timeout(SECONDS):
            await stage.plugin._reconciler.look()
        await stage.eventually(lambda: modes(stage) == ["none", "none"])
        assert node.in_force(1, cgroup) == NO_LIMIT
