"""The real process over the real driver binding, with the stand-in NVML library."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fakecluster import objects
from fakecluster.objects import planned
from fakekubelet.kubelet import FakeKubelet
from prometheus_client.parser import text_string_to_metric_families

from gpudeviceplugin.settings import DevicePluginSettings
from gpukube.testing.apiserver import FakeApiServer
from mocknvml import build

pytestmark = pytest.mark.slow

MIB = 1024 * 1024
SECONDS = 60.0
"""For everything that is waited for; only a test that fails takes so long."""


class Process:
    """A plugin process on a fake node with a machine of the mock library."""

    def __init__(self, root: Path, machine: str) -> None:
        self.root = root
        self.machine = root / "machine"
        self.machine.write_text(build.machine(machine).read_text())
        self.health = root / "machine.state"
        self.cluster = FakeApiServer()
        self.kubelet = FakeKubelet(root, self.cluster)
        self.child: asyncio.subprocess.Process | None = None
        self.log = root / "log"

    async def spawn(self) -> None:
        flags = {
            "--node-name": "n1",
            "--kubelet-dir": self.kubelet.directory,
            "--pod-resources-socket": self.kubelet.pod_resources,
            "--kubeconfig": self.cluster.write_kubeconfig(self.root),
            "--listen-host": "127.0.0.1",
            "--listen-port": 0,
            "--probe-seconds": 0.1,
            "--match-patience": 5,  # a busy machine may be late with the watch
            "--host-proc": self.root / "proc",
        }
        library = await asyncio.to_thread(build.ensure)
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(library),
            "GPUSHARE_MOCK_NVML_MACHINE": str(self.machine),
        }
        with self.log.open("wb") as log:
            self.child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gpudeviceplugin",
                *[str(part) for flag in flags.items() for part in flag],
                env=environment,
                stderr=log,
            )

    async def end(self) -> int:
        """End it by SIGTERM; returns its exit status."""
        assert self.child is not None
        with suppress(ProcessLookupError):
            self.child.terminate()
        async with asyncio.timeout(SECONDS):
            return await self.child.wait()

    async def offered(self, count: int) -> None:
        """Until kubelet counts so many healthy units."""
        healthy = self.kubelet.manager.healthy
        await self.kubelet_has(lambda: len(healthy.get("aliyun.com/gpu-mem", ())) == count)

    async def kubelet_has(self, predicate: Callable[[], bool]) -> None:
        """Until something is true of kubelet; a failure shows the end of the log."""
        try:
            await self.kubelet.wait_for(predicate)
        except TimeoutError:
            raise AssertionError(self.log.read_text()[-3000:]) from None

    async def logged(self, words: str) -> str:
        """The first line of the log with these words, once it is whole."""
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    lines = self.log.read_text().splitlines(keepends=True)
                    found = [line for line in lines if words in line and line.endswith("\n")]
                    if found:
                        return found[0]
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(self.log.read_text()[-3000:]) from None


@asynccontextmanager
async def process(root: Path, machine: str) -> AsyncIterator[Process]:
    made = Process(root, machine)
    async with made.cluster:
        made.cluster.nodes.put(objects.node("n1"))
        async with made.kubelet:
            await made.spawn()
            try:
                yield made
            finally:
                await made.end()


@pytest.mark.parametrize(
    ("machine", "units"),
    [("t4-2x16", 30), ("a100-mig-2x40", 19 + 9 + 4 + 39)],
)
async def test_a_machine_is_offered_as_its_driver_reports_it(
    tmp_path: Path, machine: str, units: int
) -> None:
    """An old driver and one with MIG, through the unmodified binding."""
    async with process(tmp_path, machine) as plugin:
        await plugin.offered(units)
        plugin.cluster.pods.put(objects.pod("p", [{"gpu-mem": 3}], annotations=planned(1, 3)))
        await plugin.kubelet.wait_for(lambda: plugin.kubelet.admitted("p"))
        assert plugin.kubelet.envs("p")["ALIYUN_COM_GPU_MEM_IDX"] == "1"
        assert await plugin.end() == 0


async def test_an_xid_and_a_lost_gpu_of_the_library_are_noticed(tmp_path: Path) -> None:
    """B9 through NVML itself: an XID withdraws GPU 0; a lost GPU 1 goes too, and comes back."""
    async with process(tmp_path, "t4-2x16") as plugin:
        await plugin.offered(30)
        plugin.health.write_text("gpu 1 lost\n")
        await plugin.offered(15)
        plugin.health.write_text("gpu 1 lost\ngpu 1 recovered\n")
        await plugin.offered(30)
        plugin.health.write_text("gpu 1 lost\ngpu 1 recovered\nxid 79 gpu 0\n")
        await plugin.offered(15)


async def test_over_use_that_the_library_reports_is_recorded_within_ten_seconds(
    tmp_path: Path,
) -> None:
    """A process of the pod has more memory than its share: one event, by the default settings.

    What the next round reports is in time where rounds are not ten seconds apart; a busy
    machine may make each of them longer.
    """
    assert DevicePluginSettings(node_name="n1").usage_seconds < 10
    async with process(tmp_path, "t4-2x16") as plugin:
        await plugin.offered(30)
        pod = objects.pod("greedy", [{"gpu-mem": 2}], annotations=planned(1, 2))
        pod["metadata"]["uid"] = uid = "00000000-0000-0000-0000-000000000077"
        plugin.cluster.pods.put(pod)
        await plugin.kubelet.wait_for(lambda: plugin.kubelet.admitted("greedy"))
        folder = tmp_path / "proc" / "77"
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(
            f"0::/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/x"
        )
        events = plugin.cluster.stores["events"]
        plugin.health.write_text("gpu 1 process pid 77 used_mib 4096 type mps name greedy\n")
        async with asyncio.timeout(SECONDS):
            while not (messages := _messages(events.objects.values(), "GpuMemoryOverused")):
                await events.wait_beyond(events.version)
        assert messages == ["uses 4096 MiB of GPU 1, but its share is 2048"]


async def test_signals_reread_and_end(tmp_path: Path) -> None:
    """SIGHUP registers anew, SIGQUIT shows the stacks and goes on, SIGTERM ends with status 0."""
    async with process(tmp_path, "t4-2x16") as plugin:
        await plugin.offered(30)
        assert plugin.child is not None
        plugin.child.send_signal(signal.SIGQUIT)
        plugin.child.send_signal(signal.SIGHUP)
        registered = plugin.kubelet.registrations
        await plugin.kubelet_has(lambda: registered.count("aliyun.com/gpu-mem") >= 2)
        await plugin.logged("most recent call first")
        assert await plugin.end() == 0


async def test_a_driver_call_that_hangs_keeps_no_process(tmp_path: Path) -> None:
    """SIGTERM ends it within seconds, so that its successor can start; the status is 0 as ever."""
    async with process(tmp_path, "t4-2x16") as plugin:
        await plugin.offered(30)
        os.mkfifo(plugin.health)  # the library reads it, and waits for a writer
        await plugin.offered(0)
        assert await plugin.end() == 0


async def test_showing_the_stacks_ends_nothing(tmp_path: Path) -> None:
    """However often, and whatever its threads do at that moment."""
    async with process(tmp_path, "t4-2x16") as plugin:
        await plugin.offered(30)
        assert plugin.child is not None
        for _ in range(600):
            plugin.child.send_signal(signal.SIGQUIT)
            plugin.child.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.001)  # so that they are not one signal
        assert await plugin.end() == 0


async def test_health_and_metrics_are_served(tmp_path: Path) -> None:
    """The endpoint reports readiness, GPUs, and memory used by processes of no pod."""
    async with process(tmp_path, "t4-2x16") as plugin:
        await plugin.offered(30)
        url = f"http://127.0.0.1:{await _port(plugin)}"
        async with httpx2.AsyncClient(verify=False, trust_env=False) as client:
            assert (await client.get(f"{url}/healthz")).text == "ok\n"
            assert await _until(client, f"{url}/readyz", "ok") == "ok\n"
            text = await _until(client, f"{url}/metrics", "unattributed_bytes{")
        gpu = {"gpu": "0", "uuid": "GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f"}
        assert _value(text, "gpushare_gpu_healthy", gpu) == 1
        assert _value(text, "gpushare_gpu_unattributed_bytes", gpu) == (3743 + 2201) * MIB


def _messages(events: Iterable[dict[str, Any]], reason: str) -> list[str]:
    return [each["message"] for each in events if each["reason"] == reason]


def _value(text: str, name: str, labels: dict[str, str]) -> float:
    """The value of one sample."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    raise AssertionError(f"no {name} with {labels}")


async def _until(client: httpx2.AsyncClient, url: str, part: str) -> str:
    """The answer of another process, once it contains ``part``."""
    async with asyncio.timeout(SECONDS):
        while part not in (text := (await client.get(url)).text):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return text


async def _port(plugin: Process) -> int:
    """The port that the log names, which is not served by who registers with kubelet."""
    return int(json.loads(await plugin.logged('"listening"'))["port"])
