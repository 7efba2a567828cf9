"""A GPU becomes unhealthy: it alone is withdrawn, its pods get events, and it comes back."""

import json
from pathlib import Path

import pytest
from fakecluster.objects import planned
from fakedriver import FakeDriver, t4
from stage import Stage

from gpucore.wire.names import INVENTORY, INVENTORY_HASH
from gpucore.wire.node.inventories import inventory_hash
from gpudeviceplugin.gpus.devices import Xid

pytestmark = pytest.mark.slow

NEVER = 1_000_000
"""Clean probes until a GPU is back: more than there are before any deadline."""
NO_DRIVER = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    "create failed: unable to start container process: error during container init: error running "
    "prestart hook #0: exit status 1, stdout: , stderr: nvidia-container-cli: initialization "
    "error: nvml error: driver not loaded: unknown"
)
WRONG_COMMAND = 'exec: "/no-such-program": stat /no-such-program: no such file or directory'
CONFIG_MAP = ("kube-system", "unhealthy-gpu-n1")


def heard(stage: Stage, resource: str) -> bool:
    """The plugin's own watch has shown a resource that it wrote: it has nothing to write."""
    assert stage.plugin is not None
    node = stage.plugin._node.node
    return node is not None and resource in node.allocatable


def unhealthy(stage: Stage) -> str:
    """What an original extender reads."""
    found = stage.cluster.stores["configmaps"].objects.get(CONFIG_MAP)
    return found["data"]["gpus"] if found else ""


async def test_a_fatal_xid_withdraws_one_gpu_everywhere(tmp_path: Path) -> None:
    """B9: kubelet, inventory, ConfigMap, and events on the pods of that GPU only."""
    async with Stage(tmp_path, clean_probes=NEVER, unhealthy_configmap=True) as stage:
        await stage.offered(30)
        stage.create("on0", {"gpu-mem": 3}, annotations=planned(0, 3))
        stage.create("on1", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("on0")
        await stage.admitted("on1")
        stage.driver.xids.put(Xid(79, stage.driver.gpus[0].uuid))
        await stage.offered(15)
        await stage.eventually(lambda: stage.gpus("healthy") == [(False,), (True,)])
        await stage.eventually(lambda: unhealthy(stage) == "0")
        [owner] = stage.cluster.stores["configmaps"].objects[CONFIG_MAP]["metadata"][
            "ownerReferences"
        ]
        assert owner["uid"] == stage.node()["metadata"]["uid"]
        await stage.eventually(lambda: stage.reasons("on0") == ["GpuUnhealthy"])
        await stage.eventually(lambda: stage.reasons("n1") == ["GpuUnhealthy"])
        assert stage.reasons("on1") == []


async def test_every_inventory_comes_with_its_label(tmp_path: Path) -> None:
    """A scheduler tries again when it sees the label: the annotation must be there by then."""
    async with Stage(tmp_path, clean_probes=NEVER) as stage:
        await stage.eventually(lambda: stage.gpus("healthy") == [(True,), (True,)])
        stage.driver.xids.put(Xid(79, stage.driver.gpus[0].uuid))
        await stage.eventually(lambda: stage.gpus("healthy") == [(False,), (True,)])
        nodes = [change.after for change in stage.cluster.nodes.history if change.after]
        texts = [node["metadata"]["annotations"].get(INVENTORY) for node in nodes]
        labels = [node["metadata"]["labels"].get(INVENTORY_HASH) for node in nodes]
        assert labels == [text and inventory_hash(text) for text in texts]
        assert len(set(labels)) == 3  # none, both well, one ill


async def test_an_application_xid_changes_nothing(tmp_path: Path) -> None:
    """B9: XID 31 leaves all devices healthy; a fatal one after it proves that it was read."""
    async with Stage(tmp_path, clean_probes=NEVER) as stage:
        await stage.offered(30)
        stage.driver.xids.put(Xid(31, stage.driver.gpus[0].uuid))
        stage.driver.xids.put(Xid(79, stage.driver.gpus[1].uuid))
        await stage.offered(15)
        await stage.eventually(lambda: stage.gpus("healthy") == [(True,), (False,)])


async def test_a_lost_gpu_leaves_the_others_working_and_returns(tmp_path: Path) -> None:
    """While GPU 0 does not answer, GPU 1 is handed out; after clean probes GPU 0 is back."""
    async with Stage(tmp_path, unhealthy_configmap=True) as stage:
        await stage.offered(30)
        stage.driver.lost.add(stage.driver.gpus[0].uuid)
        await stage.offered(15)
        stage.create("p", {"gpu-mem": 3}, annotations=planned(0, 3))
        await stage.admitted("p")
        assert stage.gpus_of("p") == {1}
        await stage.eventually(lambda: len(stage.inventory()["gpus"]) == 2)
        stage.driver.lost.clear()
        await stage.offered(30)
        await stage.eventually(
            lambda: unhealthy(stage) == "" and "GpuRecovered" in stage.reasons("n1")
        )
        assert CONFIG_MAP not in stage.cluster.stores["configmaps"].objects


async def test_a_gpu_that_is_dead_at_the_start_is_reported_on_its_node(tmp_path: Path) -> None:
    """It cannot be in the inventory; the other GPU is offered."""
    driver = FakeDriver(t4(0), t4(1))
    driver.lost.add(t4(1).uuid)
    async with Stage(tmp_path, driver) as stage:
        await stage.offered(15)
        await stage.eventually(lambda: stage.reasons("n1") == ["GpuNotResponding"])
        (event,) = stage.cluster.stores["events"].objects.values()
        why = f"{t4(1).uuid} is lost"
        assert event["message"] == f"GPU 1 does not respond, and is not offered: {why}"


async def test_a_gpu_that_hangs_is_withdrawn_and_holds_up_nobody(tmp_path: Path) -> None:
    """Probes that never return make every GPU doubtful, but kubelet is answered at once."""
    async with Stage(tmp_path, probe_seconds=0.05) as stage:
        await stage.offered(30)
        stage.driver.block.clear()
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        await stage.offered(0)
        stage.driver.block.set()
        await stage.offered(30)


async def test_somebody_elses_list_of_unhealthy_gpus_is_left_alone(tmp_path: Path) -> None:
    """A ConfigMap without the plugin's label belongs to another program."""
    async with Stage(tmp_path, clean_probes=NEVER, unhealthy_configmap=True) as stage:
        foreign = {
            "metadata": {"namespace": CONFIG_MAP[0], "name": CONFIG_MAP[1]},
            "data": {"gpus": "1"},
        }
        stage.cluster.stores["configmaps"].put(foreign)
        await stage.offered(30)
        stage.driver.xids.put(Xid(79, stage.driver.gpus[0].uuid))
        await stage.offered(15)
        await stage.eventually(lambda: "GpuUnhealthy" in stage.reasons("n1"))
        assert unhealthy(stage) == "1"


async def test_pods_that_the_gpu_hook_cannot_start_withdraw_the_gpu(tmp_path: Path) -> None:
    """Pods of two namespaces fail in the GPU hook on GPU 0: it is withdrawn, and stays away."""
    async with Stage(tmp_path, breaker_failures=3, probe_seconds=0.02) as stage:
        await stage.offered(30)
        stage.kubelet.unstartable = dict.fromkeys(("p0", "p1", "p2"), NO_DRIVER)
        for name, namespace in (("p0", "a"), ("p1", "a"), ("p2", "b")):
            stage.create(name, {"gpu-mem": 1}, annotations=planned(0, 1), namespace=namespace)
        await stage.offered(15)
        await stage.eventually(lambda: "GpuUnhealthy" in stage.reasons("p2"))
        probes = stage.driver.probes
        await stage.eventually(lambda: stage.driver.probes > probes + 40)
        assert len(stage.kubelet.manager.healthy["aliyun.com/gpu-mem"]) == 15


async def test_pods_with_a_wrong_command_leave_the_gpu_offered(tmp_path: Path) -> None:
    """Any number of pods whose program does not exist; an XID after them proves they were read."""
    async with Stage(tmp_path, breaker_failures=2, clean_probes=NEVER) as stage:
        await stage.offered(30)
        names = [f"p{number}" for number in range(6)]
        stage.kubelet.unstartable = dict.fromkeys(names, WRONG_COMMAND)
        for number, name in enumerate(names):
            namespace = f"team-{number % 3}"
            stage.create(name, {"gpu-mem": 1}, annotations=planned(0, 1), namespace=namespace)
        statuses = stage.cluster.pods.objects.values()
        await stage.eventually(
            lambda: sum("containerStatuses" in pod["status"] for pod in statuses) == len(names)
        )
        stage.driver.xids.put(Xid(79, stage.driver.gpus[1].uuid))
        await stage.eventually(lambda: stage.gpus("healthy") == [(True,), (False,)])


async def test_the_published_gpus_are_written_once(tmp_path: Path) -> None:
    """No write loop: after all is published, further looks write nothing."""
    async with Stage(tmp_path, refresh_seconds=0.05) as stage:
        await stage.offered(30)
        await stage.eventually(lambda: "GPU_TOPOLOGY" in stage.node()["metadata"]["annotations"])
        await stage.eventually(
            lambda: "aliyun.com/gpu-count" in stage.node()["status"]["allocatable"]
        )
        await stage.eventually(lambda: heard(stage, "aliyun.com/gpu-count"))
        writes = stage.cluster.calls["PATCH", "/api/v1/nodes/n1"]
        probes = stage.driver.probes
        await stage.eventually(lambda: stage.driver.probes > probes + 40)
        assert stage.cluster.calls["PATCH", "/api/v1/nodes/n1"] == writes
        text = stage.node()["metadata"]["annotations"]["GPU_TOPOLOGY"]
        assert json.loads(text) == {"GPU_SYS_0_1": "Cross CPU socket"}


async def test_a_count_that_kubelet_reset_is_written_again(tmp_path: Path) -> None:
    """A re-created node loses its count: it comes back."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        await stage.eventually(
            lambda: "aliyun.com/gpu-count" in stage.node()["status"]["allocatable"]
        )
        stage.cluster.nodes.put(stage.node() | {"status": {"capacity": {}, "allocatable": {}}})
        await stage.eventually(
            lambda: stage.node()["status"]["capacity"].get("aliyun.com/gpu-count") == "2"
        )


async def test_the_type_of_the_machine_comes_from_its_label(tmp_path: Path) -> None:
    """NODE_TYPE defaults to the well-known instance-type label."""
    stage = Stage(tmp_path)
    stage.labels = {"gpushare": "true", "node.kubernetes.io/instance-type": "ecs.gn6"}
    async with stage:
        await stage.offered(30)
        await stage.eventually(
            lambda: stage.node()["metadata"]["annotations"].get("NODE_TYPE") == "ecs.gn6"
        )


async def test_a_driver_that_is_reloaded_is_queried_again(tmp_path: Path) -> None:
    """The driver goes away under the plugin: all GPUs are withdrawn, and return with it."""
    async with Stage(tmp_path, refresh_seconds=0.2, driver_retry_seconds=0.1) as stage:
        await stage.offered(30)
        stage.driver.absent = True
        await stage.offered(0)
        stage.driver.absent = False
        await stage.offered(30)
