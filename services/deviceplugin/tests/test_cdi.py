"""Limits by CDI: the file is there before kubelet names it, and goes with its last container."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakecluster import objects
from nodeinfo import with_versions
from stage import Stage

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy, grant
from gpucore.node.isolation.cdi import CdiDevice
from gpucore.units import GpuIndex, GpuUuid, NodeName
from gpucore.wire.node.spec import Node
from gpudeviceplugin.isolation.cdi import NOTED_SECONDS, CdiFiles

pytestmark = pytest.mark.slow

INVENTORY = Inventory(gpus=(Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15),))
NEW = ("v1.36.2", "containerd://2.1.9")


def device(units: int) -> CdiDevice:
    """The device of a share of GPU 0."""
    policy = GrantPolicy(cdi=True)
    share = grant(Resource.MEM, {GpuIndex(0): units}, INVENTORY, policy).share
    assert share is not None
    return share


def described(folder: Path) -> dict[str, dict[str, str]]:
    """Environment by qualified name, of all files as a runtime reads them."""
    found = {}
    for path in folder.glob("*.json"):
        spec = json.loads(path.read_text())
        for each in spec["devices"]:
            env = dict(item.split("=", 1) for item in each["containerEdits"]["env"])
            found[f"{spec['kind']}={each['name']}"] = env
    return found


def empty(folder: Path) -> None:
    """A reboot: the directory is memory."""
    for path in folder.iterdir():
        path.unlink()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The runtime's directory."""
    made = tmp_path / "cdi"
    made.mkdir()
    return made


async def test_a_container_is_given_a_device_with_its_whole_environment(
    tmp_path: Path, folder: Path
) -> None:
    """The answer names a device that a file describes, with the environment of the answer."""
    async with Stage(tmp_path, cdi="on", cdi_dir=folder) as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=objects.planned(1, 3))
        await stage.admitted("p")
        (name,) = stage.kubelet.cdi("p")
        assert described(folder)[name] == stage.kubelet.envs("p")


@pytest.mark.parametrize(
    ("versions", "used"), [(NEW, True), (("v1.20.2", "containerd://1.4.3"), False)]
)
async def test_the_nodes_versions_decide_by_default(
    tmp_path: Path, folder: Path, versions: tuple[str, str], *, used: bool
) -> None:
    """CDI is used where kubelet and runtime support it; other nodes get environment variables."""
    async with Stage(tmp_path, cdi_dir=folder) as stage:
        stage.cluster.nodes.put(with_versions(stage.node(), *versions))
        await stage.offered(30)
        assert stage.plugin is not None
        watch = stage.plugin._node
        await stage.eventually(lambda: watch.node and watch.node.kubelet == versions[0])
        stage.create("p", {"gpu-mem": 3}, annotations=objects.planned(1, 3))
        await stage.admitted("p")
        assert bool(stage.kubelet.cdi("p")) is used
        assert bool(described(folder)) is used


async def test_a_share_whose_file_cannot_be_written_is_refused(
    tmp_path: Path, folder: Path
) -> None:
    """A container without its limits would be worse than one that waits."""
    async with Stage(tmp_path, cdi="on", cdi_dir=folder / "missing") as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=objects.planned(1, 3))
        assert "cannot write the CDI file" in await stage.rejected("p")


async def test_files_are_there_again_after_a_reboot(tmp_path: Path, folder: Path) -> None:
    """A restarted plugin writes what kubelet's running containers name, before new pods come."""
    async with Stage(tmp_path, cdi="on", cdi_dir=folder) as stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 3}, annotations=objects.planned(1, 3))
        await stage.admitted("p")
        (name,) = stage.kubelet.cdi("p")
        await stage.stop_plugin()
        empty(folder)
        await stage.start_plugin()
        await stage.eventually(lambda: name in described(folder))


async def test_files_outlast_a_restart_before_the_driver(tmp_path: Path, folder: Path) -> None:
    """Nothing is removed while no GPU is known; once there are GPUs, what is missing is written."""
    stage = Stage(
        tmp_path, cdi="on", cdi_dir=folder, reconcile_seconds=600.0, driver_retry_seconds=0.05
    )
    async with stage:
        await stage.offered(30)
        stage.create("p", {"gpu-mem": 2}, inits=[{"gpu-mem": 6}], annotations=objects.planned(0, 6))
        await stage.admitted("p")
        await stage.eventually(lambda: len(described(folder)) == 2)
        before = described(folder)
        await stage.stop_plugin()
        (folder / f"gpushare.io-share_{device_of(stage, 'p')}.json").unlink()
        stage.driver.absent = True
        await stage.start_plugin()
        await stage.informed()
        assert stage.plugin is not None
        state = stage.plugin.state
        await stage.eventually(lambda: state.policy.cdi)
        assert len(described(folder)) == 1
        stage.driver.absent = False
        await stage.eventually(lambda: described(folder) == before)


def device_of(stage: Stage, name: str) -> str:
    """The CDI device of a pod's container."""
    return stage.kubelet.cdi(name)[-1].partition("=")[2]


def test_a_file_goes_with_its_last_container(folder: Path) -> None:
    """Not before kubelet could list the grant, and not while an init container may return."""
    now = [0.0]
    files = CdiFiles(folder, "on", clock=lambda: now[0])
    files.deliver(device(3))
    files.sync({}, [])
    assert len(described(folder)) == 1
    now[0] = NOTED_SECONDS
    files.sync({}, [frozenset({"GPU-0", "0"})])
    assert len(described(folder)) == 1
    files.sync({}, [])
    assert described(folder) == {}


def test_an_earlier_plugins_files_are_known_and_others_are_left_alone(folder: Path) -> None:
    """Orphans of an earlier process go; files of NVIDIA's toolkit are not ours."""
    CdiFiles(folder, "on").deliver(device(3))
    other = folder / "nvidia.json"
    other.write_text('{"devices": []}')
    files = CdiFiles(folder, "on")
    files.sync({device(4).name: device(4)}, [])
    assert {path.name for path in folder.iterdir()} == {
        "nvidia.json",
        f"gpushare.io-share_{device(4).name}.json",
    }


def test_a_file_that_somebody_removed_is_written_again(folder: Path) -> None:
    """A grant looks whether its file is there."""
    files = CdiFiles(folder, "on")
    for _ in range(2):
        files.deliver(device(3))
        (path,) = folder.iterdir()
        path.unlink()
    assert described(folder) == {}


def test_many_grants_of_the_same_amounts_have_few_files(folder: Path) -> None:
    """Files are bounded by the different shares of a GPU, however many pods come and go."""
    files = CdiFiles(folder, "on")
    for pod in range(1000):
        files.deliver(device(1 + pod % 15))
    assert len(list(folder.iterdir())) == 15


@pytest.mark.parametrize(
    ("mode", "versions", "used", "certain"),
    [
        ("auto", NEW, True, True),
        ("auto", ("v1.30.1", "containerd://1.7.20"), True, False),
        ("auto", ("v1.28.15", "cri-o://1.28.11"), True, False),
        ("auto", ("v1.30.1", "docker://27.0"), False, False),
        ("auto", ("", ""), False, False),
        ("on", ("", ""), True, True),
        ("off", NEW, False, False),
    ],
)
def test_when_cdi_is_used(
    folder: Path, mode: Any, versions: tuple[str, str], *, used: bool, certain: bool
) -> None:
    """The setting decides, and where it is auto the node's versions."""
    node = Node(NodeName("n"), kubelet=versions[0], runtime=versions[1])
    files = CdiFiles(folder, mode)
    assert (files.used_on(node), files.certain_on(node)) == (used, certain)
    assert CdiFiles(folder / "missing", mode).used_on(node) is (mode == "on")
