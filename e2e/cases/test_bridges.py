"""Exclusive GPUs on a machine whose GPUs are joined in pairs by NVLink bridges."""

from collections.abc import Iterator, Sequence

import pytest

from environments.case import Case
from environments.environment import MachineGpu
from environments.kind import KindEnvironment
from environments.machines import IN_NODE, LIBRARY_IN_NODE
from environments.machineswap import playing
from environments.podresources import allocated
from environments.waiting import PATIENCE_SECONDS, until
from environments.workloads import GPU, Object

pytestmark = pytest.mark.e2e

GROUP = "ALIYUN_COM_GPU_GROUP"
LIBRARY, MACHINE = "/usr/local/nvml", "/machine"

ASK_NVML = """
import os
import pynvml as nvml
nvml.nvmlInit()
gpus = [nvml.nvmlDeviceGetHandleByUUID(u) for u in os.environ["NVIDIA_VISIBLE_DEVICES"].split(",")]
other = nvml.nvmlDeviceGetPciInfo(gpus[1]).busId
slots = range(nvml.NVML_NVLINK_MAX_LINKS)
def end(slot):
    try:
        return nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpus[0], slot).busId
    except nvml.NVMLError:
        return None
links = sum(end(slot) == other for slot in slots)
print(*[nvml.nvmlDeviceGetIndex(gpu) for gpu in gpus], f"NV{links}")
"""
"""Prints the GPUs of the container and how NVML reports they are joined."""


@pytest.fixture(scope="module")
def bridged(
    environment: KindEnvironment, small: str
) -> Iterator[tuple[str, tuple[MachineGpu, ...]]]:
    """A node with eight GPUs in four bridges, and its GPUs."""
    with playing(environment, small, "nvlink-bridge-8x48") as gpus:
        yield small, gpus


@pytest.mark.parametrize(
    ("order", "groups"),
    [
        pytest.param((2, 2, 2, 2), ("0,1", "2,3", "4,5", "6,7"), id="pairs"),
        pytest.param((1, 2, 4, 1), ("0", "2,3", "4,5,6,7", "1"), id="1-2-4-1"),
        pytest.param((4, 2, 1, 1), ("0,1,2,3", "4,5", "6", "7"), id="4-2-1-1"),
        pytest.param((8,), ("0,1,2,3,4,5,6,7",), id="8"),
    ],
)
def test_pods_of_two_and_more_keep_bridges_whole(
    environment: KindEnvironment,
    case: Case,
    bridged: tuple[str, tuple[MachineGpu, ...]],
    order: Sequence[int],
    groups: Sequence[str],
) -> None:
    """Pods of two and more get whole bridges, whatever the order, and kubelet agrees."""
    node, gpus = bridged
    until("no GPU handed out", lambda: not allocated(environment, node, GPU))
    names = [f"p{number}" for number in range(len(order))]
    requests = zip(names, order, strict=True)
    case.run_in_turn(*(case.pod(name, count, node=node, resource=GPU) for name, count in requests))
    assert [case.annotations(name)[GROUP] for name in names] == list(groups)
    given = {one.pod: set(one.gpus) for one in allocated(environment, node, GPU)}
    for name, group in zip(names, groups, strict=True):
        uuids = [gpus[int(index)].uuid for index in group.split(",")]
        assert case.env(name)["NVIDIA_VISIBLE_DEVICES"].split(",") == uuids
        assert given[name] == set(uuids)


def nvml_job(environment: KindEnvironment, case: Case, node: str) -> Object:
    """A Job of two GPUs that queries NVML about them from inside its container."""
    job = case.job("links", 2, node=node, script="", resource=GPU)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    image = environment.values["devicePlugin"]["image"]
    container["image"] = f"{image['repository']}:{image['tag']}"
    container["command"] = ["python", "-c", ASK_NVML]
    container["env"] = [
        {"name": "LD_LIBRARY_PATH", "value": LIBRARY},
        {"name": "GPUSHARE_MOCK_NVML_MACHINE", "value": f"{MACHINE}/machine"},
    ]
    folders = {"nvml": (LIBRARY_IN_NODE, LIBRARY), "machine": (IN_NODE, MACHINE)}
    container["volumeMounts"] = [
        {"name": name, "mountPath": inside, "readOnly": True}
        for name, (_, inside) in folders.items()
    ]
    job["spec"]["template"]["spec"]["volumes"] = [
        {"name": name, "hostPath": {"path": path}} for name, (path, _) in folders.items()
    ]
    return job


def test_a_job_of_two_gpus_prints_them_and_the_bridge_between_them(
    environment: KindEnvironment, case: Case, bridged: tuple[str, tuple[MachineGpu, ...]]
) -> None:
    """With GPU 0 taken, the job gets the next bridge, and NVML shows its four NVLinks."""
    node, _ = bridged
    until("no GPU handed out", lambda: not allocated(environment, node, GPU))
    case.create_running(case.pod("one", 1, node=node, resource=GPU))
    case.kubectl.apply(nvml_job(environment, case, node))
    case.kubectl(
        "wait",
        "job/links",
        "-n",
        case.name,
        "--for=condition=complete",
        f"--timeout={PATIENCE_SECONDS}s",
    )
    (pod,) = (each for each in case.pods() if each["metadata"]["name"] != "one")
    log = case.kubectl("logs", pod["metadata"]["name"], "-n", case.name)
    assert log.split() == ["2", "3", "NV4"]
