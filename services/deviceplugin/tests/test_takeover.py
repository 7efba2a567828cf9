"""A node that an original plugin served: its pods stay on the GPUs of their annotations."""

from pathlib import Path
from typing import Any

import pytest
from fakecluster.objects import planned
from stage import Stage

pytestmark = pytest.mark.slow


def as_the_original_left_it(stage: Stage, name: str, gpu: int, units: int) -> dict[str, str]:
    """Rewrite a pod's annotations: on ``gpu`` by the original's word; returns them."""
    pod = stage.cluster.pods.objects["default", name]
    written = planned(gpu, units) | {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    stage.cluster.pods.put(pod | {"metadata": pod["metadata"] | {"annotations": written}})
    return written


def held(stage: Stage) -> list[dict[str, Any]]:
    """The GPUs of the published inventory."""
    found: list[dict[str, Any]] = stage.inventory()["gpus"]
    return found


async def test_the_word_of_the_original_stands_against_kubelets_ids(tmp_path: Path) -> None:
    """Ten units on GPU 1 that kubelet counts on GPU 0: GPU 1 has five left, not minus ten.

    A new process of the plugin stands for the one that takes over: it has allocated nothing.
    """
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("old", {"gpu-mem": 10}, annotations=planned(0, 10))
        await stage.admitted("old")
        assert stage.gpus_of("old") == {0}
        await stage.stop_plugin()
        await stage.offered(0)
        written = as_the_original_left_it(stage, "old", 1, 10)
        await stage.start_plugin()
        await stage.informed()
        await stage.offered(30)
        await stage.eventually(lambda: [gpu.get("withheld", 0) for gpu in held(stage)] == [10, 0])

        stage.create("too-much", {"gpu-mem": 6}, annotations=planned(1, 6))
        assert "GPU 1 has 5 of 15 free" in await stage.rejected("too-much")
        stage.create("rest", {"gpu-mem": 5}, annotations=planned(1, 5))
        await stage.admitted("rest")
        assert stage.gpus_of("rest") == {1}
        confirmed = "ALIYUN_COM_GPU_MEM_ASSIGNED"
        await stage.eventually(lambda: stage.annotations("rest")[confirmed] == "true")
        assert stage.annotations("old") == written
        assert stage.reasons("old") == []
        stage.cluster.pods.delete("default", "old")
        await stage.eventually(lambda: not any("withheld" in gpu for gpu in held(stage)))


async def test_an_exclusive_gpu_is_not_one_that_the_original_gave_away(tmp_path: Path) -> None:
    """Ten units on GPU 1 that kubelet counts on GPU 0: an exclusive GPU is GPU 0, as planned."""
    async with Stage(tmp_path) as stage:
        stage.label(gpushare="true", gputopology="true")
        await stage.offered(30)
        stage.create("old", {"gpu-mem": 10}, annotations=planned(0, 10))
        await stage.admitted("old")
        await stage.stop_plugin()
        await stage.offered(0)
        as_the_original_left_it(stage, "old", 1, 10)
        await stage.start_plugin()
        await stage.informed()
        await stage.offered(2, "aliyun.com/gpu")
        stage.create("train", {"gpu": 1}, annotations={"ALIYUN_COM_GPU_GROUP": "0"})
        await stage.admitted("train")
        confirmed = "ALIYUN_COM_GPU_ASSIGNED"
        await stage.eventually(lambda: stage.annotations("train").get(confirmed) == "true")
        assert stage.annotations("train")["ALIYUN_COM_GPU_GROUP"] == "0"


async def test_a_forged_word_is_corrected(tmp_path: Path) -> None:
    """The same annotations on a pod that this plugin serves are no more than a wrong plan."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        forged = planned(1, 4) | {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
        stage.create("forged", {"gpu-mem": 4}, annotations=forged)
        await stage.admitted("forged")
        (gpu,) = stage.gpus_of("forged")
        index = "ALIYUN_COM_GPU_MEM_IDX"
        await stage.eventually(
            lambda: "scheduler.framework.gpushare.allocation" in stage.annotations("forged")
        )
        assert stage.annotations("forged")[index] == str(gpu)
