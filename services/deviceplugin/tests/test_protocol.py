"""The plugin between a kubelet and a cluster, from registration to annotations that are true."""

from pathlib import Path

import pytest
from fakecluster.objects import planned
from fakedriver import FakeDriver, t4
from stage import Stage

pytestmark = pytest.mark.slow


async def test_two_gpus_of_sixteen_gib_are_thirty_devices(tmp_path: Path) -> None:
    """B1: two GPUs of 16130 MiB in GiB are 30 devices named by GPU; the node counts 2."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        ids = stage.kubelet.manager.healthy["aliyun.com/gpu-mem"]
        assert ids == {f"{c.uuid}-_-{n}" for c in stage.driver.gpus for n in range(15)}
        await stage.eventually(
            lambda: stage.node()["status"]["capacity"].get("aliyun.com/gpu-count") == "2"
        )
        assert stage.node()["status"]["allocatable"]["aliyun.com/gpu-count"] == "2"
        await stage.eventually(lambda: stage.gpus("units") == [(15,), (15,)], "the inventory")


async def test_a_planned_pod_gets_its_gpu_and_the_original_environment(tmp_path: Path) -> None:
    """B3: a pod of 3 planned on GPU 1 gets GPU 1 and the V1 variables and is ASSIGNED."""
    async with Stage(tmp_path, visible_devices="index") as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        assert stage.gpus_of("p") == {1}
        env = stage.kubelet.envs("p")
        assert env["NVIDIA_VISIBLE_DEVICES"] == "1"
        assert env["ALIYUN_COM_GPU_MEM_IDX"] == "1"
        assert env["ALIYUN_COM_GPU_MEM_POD"] == "3"
        assert env["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3"
        assert env["ALIYUN_COM_GPU_MEM_DEV"] == "15"
        await stage.eventually(
            lambda: stage.annotations("p")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )


async def test_a_new_kubelet_is_registered_with_and_disturbs_no_pod(tmp_path: Path) -> None:
    """B8: the plugin registers with a new kubelet again; running pods keep their ids."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        before = stage.kubelet.devices("p")
        await stage.kubelet.restart()
        await stage.offered(30)
        assert stage.kubelet.registrations.count("aliyun.com/gpu-mem") == 2
        assert stage.kubelet.devices("p") == before


async def test_a_node_of_one_gpu_gives_it_to_a_pod_that_nobody_planned(tmp_path: Path) -> None:
    """B6: no plan and one GPU: that GPU, by its uuid, and the annotation reports it afterwards."""
    driver = FakeDriver(t4(0))
    async with Stage(tmp_path, driver) as stage:
        await stage.offered(15)
        stage.create("p", {"gpu-mem": 3})
        await stage.admitted("p")
        assert stage.kubelet.envs("p")["NVIDIA_VISIBLE_DEVICES"] == driver.gpus[0].uuid
        await stage.eventually(lambda: stage.annotations("p").get("ALIYUN_COM_GPU_MEM_IDX") == "0")
