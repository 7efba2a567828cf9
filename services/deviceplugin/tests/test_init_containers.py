"""Pods of which only an init container or a sidecar requests GPUs, over a whole plugin."""

from pathlib import Path
from typing import Any

import pytest
from fakecluster.objects import planned
from stage import Stage

from gpucore.units import GpuIndex

pytestmark = pytest.mark.slow

ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
INDEX = "ALIYUN_COM_GPU_MEM_IDX"


@pytest.mark.parametrize("more", [{"inits": [{"gpu-mem": 3}]}, {"sidecars": [{"gpu-mem": 3}]}])
async def test_a_pod_without_a_requesting_container_is_confirmed_and_corrected(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    """A kept plan is confirmed; a pod without a plan gets the GPU that it really has."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("kept", {}, annotations=planned(1, 3), **more)
        await stage.admitted("kept")
        stage.create("adopted", {}, **more)
        await stage.admitted("adopted")
        await stage.eventually(lambda: stage.annotations("kept")[ASSIGNED] == "true")
        await stage.eventually(lambda: stage.annotations("adopted").get(ASSIGNED) == "true")
        for name in ("kept", "adopted"):
            assert {int(stage.annotations(name)[INDEX])} == stage.gpus_of(name)
        assert stage.reasons("kept") == []


async def test_a_gpu_of_an_init_container_stays_shared_until_the_pod_ends(tmp_path: Path) -> None:
    """Kubelet does not list it, and still the GPU is not given away whole."""
    stage = Stage(tmp_path)
    stage.labels = {"gpushare": "true", "gputopology": "true"}
    async with stage:
        await stage.offered(30)
        await stage.offered(2, "aliyun.com/gpu")  # kubelet admits without devices before that
        stage.create("p", {}, inits=[{"gpu-mem": 3}], annotations=planned(0, 3))
        await stage.admitted("p")
        await stage.eventually(lambda: stage.annotations("p")[ASSIGNED] == "true")
        stage.create("one", {"gpu": 1}, annotations={"ALIYUN_COM_GPU_GROUP": "0"})
        await stage.admitted("one")
        await stage.eventually(lambda: stage.annotations("one").get("ALIYUN_COM_GPU_GROUP") == "1")
        stage.create("two", {"gpu": 1})
        assert "shared" in await stage.rejected("two") or "free" in stage.kubelet.rejected["two"]


async def test_a_pod_keeps_its_plan_while_the_init_container_of_another_runs(
    tmp_path: Path,
) -> None:
    """Kubelet lists that pod without devices; once its grant has settled it is not next again."""
    async with Stage(tmp_path, reconcile_seconds=0.3) as stage:
        await stage.offered(30)
        stage.kubelet.unstartable["first"] = "it waits"  # it stays Pending
        stage.create("first", {}, inits=[{"gpu-mem": 4}], annotations=planned(0, 4))
        await stage.eventually(lambda: stage.annotations("first")[ASSIGNED] == "true")
        assert stage.plugin is not None
        state = stage.plugin.state
        state._recent.clear()
        await stage.plugin._reconciler.read()
        assert state.matcher.queue.unserved() == []
        stage.create("second", {"gpu-mem": 4}, annotations=planned(1, 4))
        await stage.admitted("second")
        assert stage.gpus_of("second") == {1}


async def test_a_restarted_plugin_keeps_the_cdi_file_of_an_init_container(tmp_path: Path) -> None:
    """It may start again, with kubelet's record of the device; and its GPU is in use."""
    folder = tmp_path / "cdi"
    folder.mkdir()
    async with Stage(tmp_path, cdi="on", cdi_dir=folder) as stage:
        await stage.offered(30)
        stage.create("p", {}, inits=[{"gpu-mem": 3}], annotations=planned(0, 3))
        await stage.eventually(lambda: stage.annotations("p")[ASSIGNED] == "true")
        (file,) = folder.iterdir()
        await stage.stop_plugin()
        await stage.start_plugin()
        assert stage.plugin is not None
        state = stage.plugin.state
        await stage.eventually(lambda: state.policy.cdi and state.in_use(GpuIndex(0)))
        await stage.plugin._reconciler.look()
        assert list(folder.iterdir()) == [file]
        assert not state.in_use(GpuIndex(1))
