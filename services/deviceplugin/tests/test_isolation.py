"""GPUs with isolation by MPS: turned on by label, offered while their daemon serves, watched."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakecluster import objects
from fakecluster.objects import planned
from fakedriver import FakeDriver, t4
from mpsstage import PROGRAM, holder
from prometheus_client import REGISTRY
from stage import Stage

from gpudeviceplugin.gpus.devices import Process, Usage

pytestmark = pytest.mark.slow

GIB = 1 << 30
MPS = "gpushare/isolation"


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory for daemons whose path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="mps"))
    yield folder
    shutil.rmtree(folder)


def mps_stage(tmp_path: Path, root: Path, **settings: Any) -> Stage:
    """A node whose GPUs may have daemons."""
    driver = settings.pop("driver", None)
    return Stage(
        tmp_path,
        driver,
        mps_root=str(root),
        mps_control=str(PROGRAM),
        mps_check_seconds=0.1,
        **settings,
    )


def modes(stage: Stage) -> list[str]:
    """Of the GPUs, as published."""
    return [gpu["mode"] for gpu in stage.inventory()["gpus"]]


def messages(stage: Stage, reason: str, about: str) -> list[str]:
    events = stage.cluster.stores["events"].objects.values()
    return [
        each["message"]
        for each in events
        if (each["reason"], each["involvedObject"]["name"]) == (reason, about)
    ]


def kill_daemon(root: Path, uuid: str) -> None:
    os.kill(holder(root / uuid / "pipe"), signal.SIGKILL)


async def test_a_label_turns_mps_on_and_a_share_is_limited(tmp_path: Path, root: Path) -> None:
    """B10 with supervision: mode published, units offered, and the variables of a client given."""
    async with mps_stage(tmp_path, root) as stage:
        await stage.offered(30)
        await stage.eventually(lambda: modes(stage) == ["none", "none"])
        stage.label(gpushare="true", **{MPS: "mps"})
        await stage.eventually(lambda: stage.gpus("mode", "healthy") == [("mps", True)] * 2)
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3) | {MPS: "mps"})
        await stage.admitted("p")
        envs = stage.kubelet.envs("p")
        assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "20"
        assert envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
        pipe = Path(envs["CUDA_MPS_PIPE_DIRECTORY"])
        assert pipe == root / stage.driver.gpus[1].uuid / "pipe"
        assert (pipe / "control").is_socket()


async def test_a_gpu_is_withdrawn_while_its_daemon_is_down(tmp_path: Path, root: Path) -> None:
    """Kubelet and inventory at once, node and pods by an event; then it is offered again."""
    async with mps_stage(tmp_path, root, mps=True) as stage:
        first, second = (gpu.uuid for gpu in stage.driver.gpus)
        await stage.offered(30)
        stage.create("on0", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("on0")
        (root / first / "faults").write_text("crash")
        kill_daemon(root, first)
        await stage.offered(15)
        await stage.eventually(lambda: messages(stage, "MpsDaemonFailed", "on0"))
        (message, *_) = messages(stage, "MpsDaemonFailed", "n1")
        assert message.startswith(f"GPU 0 ({first}) accepts no new pods: its MPS daemon fails: ")
        await stage.eventually(lambda: stage.gpus("healthy") == [(False,), (True,)])
        (root / first / "faults").unlink()
        await stage.offered(30)
        await stage.eventually(lambda: messages(stage, "MpsDaemonServes", "n1"))
        assert messages(stage, "MpsDaemonFailed", "n1") == [message]
        assert second not in message


async def test_a_gpu_changes_its_mode_only_when_it_is_empty(tmp_path: Path, root: Path) -> None:
    """The GPU in use goes on as it is, and follows when its last pod has gone."""
    async with mps_stage(tmp_path, root) as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("p")
        stage.label(gpushare="true", **{MPS: "mps"})
        await stage.eventually(lambda: modes(stage) == ["none", "mps"])
        expected = "GPU 0 keeps isolation mode none until no pod uses it, then changes to mps"
        await stage.eventually(lambda: expected in messages(stage, "GpuIsolation", "n1"))
        stage.cluster.pods.delete("default", "p")
        await stage.eventually(lambda: modes(stage) == ["mps", "mps"])


async def test_a_restarted_plugin_goes_on_with_the_modes_it_had(tmp_path: Path, root: Path) -> None:
    """A label that went meanwhile does not open a GPU that is in use."""
    async with mps_stage(tmp_path, root) as stage:
        stage.label(gpushare="true", **{MPS: "mps"})
        await stage.eventually(lambda: stage.gpus("mode", "healthy") == [("mps", True)] * 2)
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("p")
        await stage.stop_plugin()
        stage.label(gpushare="true")
        await stage.start_plugin()
        await stage.eventually(lambda: modes(stage) == ["mps", "none"])


async def test_what_pods_left_in_shared_memory_goes_with_the_last_of_them(
    tmp_path: Path, root: Path
) -> None:
    """While a pod has a share its files stay; without any pod they are removed."""
    async with mps_stage(tmp_path, root, mps=True, reconcile_seconds=0.05) as stage:
        await stage.eventually(lambda: stage.gpus("mode", "healthy") == [("mps", True)] * 2)
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("p")
        left = root / "shm" / "left"
        left.touch()
        await stage.eventually(
            lambda: stage.annotations("p").get("ALIYUN_COM_GPU_MEM_ASSIGNED") == "true"
        )
        assert left.exists()
        stage.cluster.pods.delete("default", "p")
        await stage.eventually(lambda: not left.exists())


async def test_a_pod_that_demands_mps_is_refused_where_there_is_none(tmp_path: Path) -> None:
    """It came past the scheduler; the sentence is in its status."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations={MPS: "mps"})
        assert "GPU 0 has isolation mode none, but the pod demands mps" in await stage.rejected("p")


async def test_the_flags_of_2019_look_at_the_operators_daemon(tmp_path: Path, root: Path) -> None:
    """--mps and --mps-pipe: its pipes are given, no daemon is started, and GPUs wait for it."""
    pipe = root / "nvidia-mps"
    stage = Stage(
        tmp_path, mps=True, mps_pipe=str(pipe), mps_control=str(PROGRAM), mps_check_seconds=0.1
    )
    async with stage:
        await stage.eventually(lambda: messages(stage, "MpsDaemonFailed", "n1"))
        assert not stage.kubelet.manager.healthy.get("aliyun.com/gpu-mem")
        assert not pipe.exists()


async def test_over_use_is_reported_to_the_pod(tmp_path: Path) -> None:
    """A pod that takes more than its share gets one event; its neighbour and the plugin none."""
    proc = tmp_path / "proc"
    stage = Stage(tmp_path, host_proc=proc, usage_seconds=0.05)
    async with stage:
        await stage.offered(30)
        for pid, name in ((7, "greedy"), (8, "modest")):
            pod = objects.pod(name, [{"gpu-mem": 2}], annotations=planned(0, 2))
            pod["metadata"]["uid"] = uid = f"00000000-0000-0000-0000-00000000000{pid}"
            stage.cluster.pods.put(pod)
            await stage.admitted(name)
            (proc / str(pid)).mkdir(parents=True)
            (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/abc\n")
        used = (Process(7, 3 * GIB), Process(8, 2 * GIB), Process(9, 9 * GIB))
        stage.driver.usages[stage.driver.gpus[0].uuid] = Usage(16 * GIB, 14 * GIB, used)
        await stage.eventually(lambda: messages(stage, "GpuMemoryOverused", "greedy"))
        probes = stage.driver.probes
        await stage.eventually(lambda: stage.driver.probes > probes + 20)
        message = messages(stage, "GpuMemoryOverused", "greedy")
        assert message == ["uses 3072 MiB of GPU 0, but its share is 2048"]
        assert stage.reasons("modest") == []


async def test_a_pod_that_replaces_its_limit_is_notified(tmp_path: Path) -> None:
    """Where no CDI delivers the limit, a variable that admission let through takes it off."""
    async with Stage(tmp_path, usage_seconds=0.05) as stage:
        await stage.offered(30)
        for name, value in (("liar", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), ("honest", "TEAM")):
            pod = objects.pod(name, [{"gpu-mem": 2}], annotations=planned(0, 2))
            pod["spec"]["containers"][0]["env"] = [{"name": value, "value": "0=80G"}]
            stage.cluster.pods.put(pod)
            await stage.admitted(name)
        await stage.eventually(lambda: messages(stage, "GpuLimitOverridden", "liar"))
        (message,) = messages(stage, "GpuLimitOverridden", "liar")
        assert message.startswith(
            "container c0 sets CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, which replaces"
        )
        assert stage.reasons("honest") == []
        assert overridden("liar", "environment") == 1
        stage.cluster.pods.delete("default", "liar")
        await stage.eventually(lambda: overridden("liar", "environment") is None)


def overridden(pod: str, by: str) -> float | None:
    """The metric of a pod without its limit; ``None`` while there is none."""
    labels = {"exported_namespace": "default", "exported_pod": pod, "by": by}
    return REGISTRY.get_sample_value("gpushare_pod_limit_overridden", labels)


async def test_where_cdi_replaces_the_variable_nothing_is_overridden(tmp_path: Path) -> None:
    """The pod's value never reaches the container, so no event is recorded."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    async with Stage(tmp_path, usage_seconds=0.05, cdi="on", cdi_dir=folder) as stage:
        await stage.offered(30)
        pod = objects.pod("p", [{"gpu-mem": 2}], annotations=planned(0, 2))
        pod["spec"]["containers"][0]["env"] = [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}]
        stage.cluster.pods.put(pod)
        await stage.admitted("p")
        probes = stage.driver.probes
        await stage.eventually(lambda: stage.driver.probes > probes + 20)
        assert messages(stage, "GpuLimitOverridden", "p") == []


async def test_a_process_past_the_daemon_is_reported_to_its_pod(tmp_path: Path, root: Path) -> None:
    """However it got there, the driver does not list it among the clients of MPS."""
    proc = tmp_path / "proc"
    stage = mps_stage(tmp_path, root, mps=True, host_proc=proc, usage_seconds=0.05)
    async with stage:
        await stage.eventually(lambda: stage.gpus("mode", "healthy") == [("mps", True)] * 2)
        await stage.offered(30)
        for pid, name in ((7, "escaped"), (8, "client"), (9, "unknown")):
            pod = objects.pod(name, [{"gpu-mem": 2}], annotations=planned(0, 2))
            pod["metadata"]["uid"] = uid = f"00000000-0000-0000-0000-00000000000{pid}"
            stage.cluster.pods.put(pod)
            await stage.admitted(name)
            (proc / str(pid)).mkdir(parents=True)
            (proc / str(pid) / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid}/abc\n")
        used = (Process(7, GIB, mps=False), Process(8, GIB, mps=True), Process(9, GIB))
        stage.driver.usages[stage.driver.gpus[0].uuid] = Usage(16 * GIB, 3 * GIB, used)
        await stage.eventually(lambda: messages(stage, "GpuLimitOverridden", "escaped"))
        assert "without the MPS daemon" in messages(stage, "GpuLimitOverridden", "escaped")[0]
        assert overridden("escaped", "process") == 1
        for name in ("client", "unknown"):
            assert messages(stage, "GpuLimitOverridden", name) == []


async def test_a_gpu_before_volta_keeps_its_mode_and_the_node_is_notified(
    tmp_path: Path, root: Path
) -> None:
    """MPS limits nothing there, so the GPU never publishes that it does."""
    old = t4(0).__class__(0, t4(0).uuid, "Tesla P40", 22919, capability=(6, 1))
    async with mps_stage(tmp_path, root, driver=FakeDriver(old, t4(1)), mps=True) as stage:
        await stage.eventually(lambda: modes(stage) == ["none", "mps"])
        await stage.eventually(lambda: messages(stage, "GpuIsolation", "n1"))
        (message,) = messages(stage, "GpuIsolation", "n1")
        assert message.startswith("GPU 0 cannot use isolation mode mps: compute capability 6.1")
