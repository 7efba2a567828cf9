"""The API server or kubelet fails: work goes on, and what was missed is made up for."""

from pathlib import Path

import pytest
from fakecluster.objects import planned
from stage import Stage

pytestmark = pytest.mark.slow


async def test_a_patch_that_failed_is_made_again(tmp_path: Path) -> None:
    """ASSIGNED becomes true once the API server takes patches again."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.cluster.fail["PATCH", "/pods/"] = 500
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        path = "/api/v1/namespaces/default/pods/p"
        await stage.eventually(lambda: stage.cluster.calls["PATCH", path] > 1)
        assert stage.annotations("p")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false"
        stage.cluster.fail.clear()
        await stage.eventually(
            lambda: stage.annotations("p")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )


async def test_the_patch_of_a_pod_that_was_replaced_is_not_applied(tmp_path: Path) -> None:
    """The uid is a precondition: a pod of the same name is never given its predecessor's GPU."""
    async with Stage(tmp_path, match_patience=0.05) as stage:
        await stage.offered(30)
        stage.cluster.watches_flow.clear()
        stage.create("web-0", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("web-0")
        stage.cluster.pods.delete("default", "web-0")
        stage.create("web-0", {"gpu-mem": 5}, annotations=planned(0, 5))
        await stage.kubelet.wait_for(lambda: stage.kubelet.admitted("web-0"))
        stage.cluster.watches_flow.set()
        await stage.eventually(
            lambda: stage.annotations("web-0")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )
        annotated = int(stage.annotations("web-0")["ALIYUN_COM_GPU_MEM_IDX"])
        assert {annotated} == stage.gpus_of("web-0")
        assert stage.annotations("web-0")["ALIYUN_COM_GPU_MEM_POD"] == "5"


async def test_publishing_waits_for_an_api_server_that_refuses(tmp_path: Path) -> None:
    """The inventory is published when the API server takes it."""
    stage = Stage(tmp_path)
    stage.cluster.fail["PATCH", "/nodes/"] = 503
    async with stage:
        await stage.offered(30)
        await stage.eventually(lambda: stage.cluster.calls["PATCH", "/api/v1/nodes/n1"] > 0)
        stage.cluster.fail.clear()
        await stage.eventually(
            lambda: "gpushare/inventory" in stage.node()["metadata"]["annotations"]
        )


async def test_pods_are_admitted_while_the_api_server_is_away(tmp_path: Path) -> None:
    """A node cut off from the API server still answers kubelet, for pods that it has listed."""
    async with Stage(tmp_path, match_patience=0.05) as stage:
        await stage.offered(30)
        for method in ("GET", "PATCH", "POST"):
            stage.cluster.fail[method, "/api"] = 500
        stage.cluster.drop_watches()
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        assert len(stage.gpus_of("p")) == 1


async def test_without_kubelets_account_pods_still_get_their_gpus(tmp_path: Path) -> None:
    """PodResources does not answer: matcher works, and ASSIGNED follows when it does."""
    stage = Stage(tmp_path, pod_resources_socket=tmp_path / "nobody.sock")
    async with stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        assert stage.gpus_of("p") == {1}
        (tmp_path / "nobody.sock").symlink_to(stage.kubelet.pod_resources)
        await stage.eventually(
            lambda: stage.annotations("p")["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        )


async def test_an_event_that_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    """Events are best effort: the correction itself is made."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.cluster.fail["POST", "/events"] = 403
        stage.create("p", {"gpu-mem": 3})
        await stage.admitted("p")
        await stage.eventually(lambda: stage.annotations("p").get("ALIYUN_COM_GPU_MEM_IDX") == "0")
