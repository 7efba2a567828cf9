"""Two schedulers, none, or a slow watch: GPUs are never over-full and pods end where they fit."""

from pathlib import Path

import pytest
from fakecluster.objects import planned
from fakedriver import FakeDriver, t4
from stage import Stage

from gpucore.wire.names import MIRROR_POD

pytestmark = pytest.mark.slow


async def test_sixteen_halves_on_eight_gpus_are_two_on_each(tmp_path: Path) -> None:
    """A burst of 16 pods of half a GPU, planned in no order: each is where it was planned."""
    driver = FakeDriver(*(t4(index) for index in range(8)))
    async with Stage(tmp_path, driver) as stage:
        await stage.offered(120)
        gpus = [3, 0, 7, 5, 1, 6, 2, 4, 4, 2, 6, 1, 5, 7, 0, 3]
        for number, gpu in enumerate(gpus):
            stage.create(f"p{number}", {"gpu-mem": 7}, annotations=planned(gpu, 7))
        for number, gpu in enumerate(gpus):
            await stage.admitted(f"p{number}")
            assert stage.gpus_of(f"p{number}") == {gpu}


async def test_pods_of_different_sizes_are_never_swapped(tmp_path: Path) -> None:
    """Unequal pods bound at once, watched late: every one has its own amount on its own GPU."""
    async with Stage(tmp_path, match_patience=5.0) as stage:
        await stage.offered(30)
        stage.cluster.watch_delay = 0.05
        for size in (5, 1, 4, 2, 3):
            stage.create(f"p{size}", {"gpu-mem": size}, annotations=planned(size % 2, size))
        for size in (5, 1, 4, 2, 3):
            await stage.admitted(f"p{size}")
            assert stage.gpus_of(f"p{size}") == {size % 2}
            assert len(stage.kubelet.devices(f"p{size}")["c0"]) == size


async def test_a_watch_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    """Kubelet calls before the watch delivers the pod: a bounded wait finds its plan."""
    async with Stage(tmp_path, match_patience=5.0) as stage:
        await stage.offered(30)
        stage.cluster.watch_delay = 0.2
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        assert stage.gpus_of("p") == {1}


async def test_a_pod_that_never_shows_is_placed_by_best_fit_and_adopted(tmp_path: Path) -> None:
    """The watch hangs: kubelet gets an answer all the same; later the annotation is true."""
    async with Stage(tmp_path, match_patience=0.05) as stage:
        await stage.offered(30)
        stage.cluster.watches_flow.clear()
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        assert stage.gpus_of("p") == {0}
        stage.cluster.watches_flow.set()
        await stage.eventually(
            lambda: stage.annotations("p")["ALIYUN_COM_GPU_MEM_IDX"] == "0", "corrected"
        )
        await stage.eventually(lambda: stage.reasons("p") == ["GpuShareCorrected"])


async def test_the_loser_of_a_clash_is_placed_anew_and_notified(tmp_path: Path) -> None:
    """Two schedulers gave GPU 0 away twice: the second pod gets GPU 1, its annotation follows."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("a", {"gpu-mem": 10}, annotations=planned(0, 10))
        stage.create("b", {"gpu-mem": 8}, annotations=planned(0, 8))
        await stage.admitted("a")
        await stage.admitted("b")
        assert (stage.gpus_of("a"), stage.gpus_of("b")) == ({0}, {1})
        await stage.eventually(lambda: stage.annotations("b")["ALIYUN_COM_GPU_MEM_IDX"] == "1")
        await stage.eventually(lambda: stage.reasons("b") == ["GpuShareCorrected"])
        assert stage.reasons("a") == []


async def test_a_pod_that_fits_nowhere_is_refused_in_words(tmp_path: Path) -> None:
    """B5: no GPU has room: the pod's status reports how much each GPU has, and no poison value."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("a", {"gpu-mem": 9}, annotations=planned(0, 9))
        stage.create("b", {"gpu-mem": 9}, annotations=planned(1, 9))
        stage.create("c", {"gpu-mem": 8}, annotations=planned(0, 8))
        sentence = await stage.rejected("c")
        assert "no GPU has 8 of gpu-mem free" in sentence
        assert "GPU 0 has 6 of 15 free, GPU 1 has 6 of 15 free" in sentence


async def test_the_last_units_of_a_node_on_two_gpus_are_no_share(tmp_path: Path) -> None:
    """Exactly the requested units are left, on two GPUs: the pod is refused, not torn apart."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("a", {"gpu-mem": 13}, annotations=planned(0, 13))
        stage.create("b", {"gpu-mem": 13}, annotations=planned(1, 13))
        stage.create("c", {"gpu-mem": 4})
        assert "GPU 0 has 2 of 15 free" in await stage.rejected("c")


async def test_a_pod_without_a_scheduler_is_adopted(tmp_path: Path) -> None:
    """A pod bound by hand runs on the best fitting GPU, gets annotations and an event."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        await stage.offered(200, "aliyun.com/gpu-core.percentage")
        stage.create("full", {"gpu-mem": 10}, annotations=planned(1, 10))
        await stage.admitted("full")
        stage.create("stray", {"gpu-mem": 3, "gpu-core.percentage": 20}, {"gpu-mem": 1})
        await stage.admitted("stray")
        assert stage.gpus_of("stray") == {1}
        await stage.eventually(lambda: stage.reasons("stray") == ["GpuShareAdopted"])
        assert stage.annotations("stray")["ALIYUN_COM_GPU_MEM_POD"] == "4"


async def test_a_pod_that_kubelet_turns_away_unseen_leaves_no_ghost(tmp_path: Path) -> None:
    """Kubelet rejects the first of three equal pods itself: the others end with the truth."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.kubelet.skip.add("a")
        for name, gpu in (("a", 0), ("b", 1), ("c", 0)):
            stage.create(name, {"gpu-mem": 3}, annotations=planned(gpu, 3))
        for name in ("b", "c"):
            await stage.admitted(name)
        for name in ("b", "c"):
            await stage.eventually(
                lambda name=name: stage.annotations(name)["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
            )
            annotated = stage.annotations(name)["ALIYUN_COM_GPU_MEM_IDX"]
            assert {int(annotated)} == stage.gpus_of(name)
        assert stage.annotations("a")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false"


async def test_a_mirror_pod_of_a_tenant_takes_no_call_that_is_for_another_pod(
    tmp_path: Path,
) -> None:
    """Kubelet never admits it: a demand that no GPU meets refuses no pod of others."""
    hostile = {MIRROR_POD: "x", "gpushare/memory-limit": "9"}
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("ghost", {"gpu-mem": 3}, annotations=hostile, namespace="tenant")
        stage.create("a", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.kubelet.wait_for(
            lambda: stage.kubelet.admitted("a") or "a" in stage.kubelet.rejected
        )
        assert stage.kubelet.rejected == {}
        assert stage.gpus_of("a") == {1}


async def test_two_containers_share_a_gpu_each_with_its_own_amount(tmp_path: Path) -> None:
    """A pod of two GPU containers and an init container: one GPU, own amounts, own variables."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create(
            "p", {"gpu-mem": 2}, {"gpu-mem": 4}, inits=[{"gpu-mem": 3}], annotations=planned(1, 6)
        )
        await stage.admitted("p")
        assert stage.gpus_of("p") == {1}
        assert stage.kubelet.envs("p", "c0")["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
        assert stage.kubelet.envs("p", "c1")["ALIYUN_COM_GPU_MEM_CONTAINER"] == "4"
        devices = stage.kubelet.devices("p")
        assert not devices["c0"] & devices["c1"]


async def test_whole_gpus_follow_their_group(tmp_path: Path) -> None:
    """A pod of two exclusive GPUs gets those of its group, named in their order."""
    stage = Stage(tmp_path, FakeDriver(*(t4(index) for index in range(4))), visible_devices="index")
    stage.labels = {"gputopology": "true"}
    async with stage:
        await stage.offered(4, "aliyun.com/gpu")
        stage.create("p", {"gpu": 2}, annotations={"ALIYUN_COM_GPU_GROUP": "1,3"})
        await stage.admitted("p")
        assert stage.kubelet.envs("p")["NVIDIA_VISIBLE_DEVICES"] == "1,3"
        await stage.eventually(
            lambda: stage.annotations("p").get("ALIYUN_COM_GPU_ASSIGNED") == "true"
        )


async def test_a_reused_name_is_a_new_pod(tmp_path: Path) -> None:
    """A StatefulSet's pod comes back under its name after a forced deletion: a plan of its own."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.create("web-0", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("web-0")
        stage.cluster.pods.delete("default", "web-0")
        stage.create("web-0", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.kubelet.wait_for(lambda: stage.kubelet.admitted("web-0"))
        assert stage.gpus_of("web-0") == {1}
        await stage.eventually(
            lambda: stage.annotations("web-0")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )
        assert stage.annotations("web-0")["ALIYUN_COM_GPU_MEM_IDX"] == "1"
