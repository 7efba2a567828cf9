"""What a node offers: by its labels, in its unit, within kubelet's message."""

from pathlib import Path

import pytest
from fakecluster.objects import planned
from fakedriver import FakeDriver, t4
from prometheus_client import REGISTRY
from stage import Stage

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import Resource, list_bytes
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, GpuIndex, GpuUuid
from gpudeviceplugin.gpus.devices import DriverGpu, MigInstance
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.state import NodeState

pytestmark = pytest.mark.slow

H200_MIB = 143771


async def test_two_gpus_in_mib_are_32260_devices(tmp_path: Path) -> None:
    """B2: the unit is MiB: 2 x 16130 devices, through the real message."""
    async with Stage(tmp_path, memory_unit="MiB") as stage:
        await stage.offered(32260)
        await stage.eventually(lambda: stage.inventory().get("unit") == "MiB")


async def test_a_list_that_kubelet_could_not_read_is_refused_with_a_way_out(tmp_path: Path) -> None:
    """8 x 141 GB in MiB: nothing is offered, and readiness names the smallest unit that fits."""
    driver = FakeDriver(*(t4(index, memory_mib=H200_MIB) for index in range(8)))
    async with Stage(tmp_path, driver, memory_unit="MiB") as stage:
        assert stage.plugin is not None
        plugin = stage.plugin
        await stage.eventually(lambda: "smallest unit that fits" in plugin.missing())
        assert "these GPUs is 17MiB" in plugin.missing()
        assert stage.kubelet.registrations == []


async def test_the_smallest_unit_is_really_read_by_kubelet(tmp_path: Path) -> None:
    """The unit that the refusal names makes a list that passes a real 4 MiB limit."""
    driver = FakeDriver(*(t4(index, memory_mib=H200_MIB) for index in range(8)))
    async with Stage(tmp_path, driver, memory_unit="17MiB") as stage:
        await stage.offered(8 * (H200_MIB // 17))


async def test_labels_choose_the_resources_and_may_change(tmp_path: Path) -> None:
    """Shares, exclusive GPUs, both or neither; a label that goes takes its resource away."""
    stage = Stage(tmp_path)
    stage.labels = {"gputopology": "true"}
    async with stage:
        await stage.offered(2, "aliyun.com/gpu")
        assert "aliyun.com/gpu-mem" not in stage.kubelet.registrations
        stage.label(gpushare="true", gputopology="true")
        await stage.offered(30)
        await stage.offered(200, "aliyun.com/gpu-core.percentage")
        stage.label(gpushare="true")
        await stage.offered(0, "aliyun.com/gpu")


async def test_mixed_gpus_offer_what_each_has(tmp_path: Path) -> None:
    """A T4 beside an A100: 15 and 40 units, in devices and in the inventory."""
    driver = FakeDriver(t4(0), t4(1, memory_mib=40960))
    async with Stage(tmp_path, driver) as stage:
        await stage.offered(55)
        await stage.eventually(lambda: stage.gpus("units") == [(15,), (40,)])
        stage.create("p", {"gpu-mem": 3}, annotations=planned(1, 3))
        await stage.admitted("p")
        assert stage.kubelet.envs("p")["ALIYUN_COM_GPU_MEM_DEV"] == "40"


async def test_a_gpu_in_mig_mode_is_offered_as_its_instances(tmp_path: Path) -> None:
    """The GPU itself is gone; each instance is a GPU of its own with its own index."""
    instances = (MigInstance(0, "MIG-a", "3g.20gb", 19968), MigInstance(2, "MIG-b", "1g.5gb", 4864))
    sliced = DriverGpu(0, "GPU-0", "A100", 40960, mig=True, slots=7, instances=instances)
    async with Stage(tmp_path, FakeDriver(sliced, t4(1))) as stage:
        await stage.offered(15 + 19 + 4)
        await stage.eventually(lambda: stage.gpus("uuid"))
        gpus = stage.gpus("index", "uuid", "mode")
        assert [(index, uuid[:5], mode) for index, uuid, mode in gpus] == [
            (1, "GPU-0", "none"),
            (2, "MIG-a", "mig"),
            (4, "MIG-b", "mig"),
        ]


async def test_gpus_that_come_later_are_offered(tmp_path: Path) -> None:
    """From no GPU to two: the node starts to offer without a restart."""
    driver = FakeDriver()
    async with Stage(tmp_path, driver) as stage:
        assert stage.plugin is not None
        plugin = stage.plugin
        await stage.eventually(lambda: plugin.missing() == "the driver lists no GPU")
        driver.gpus = (t4(0), t4(1))
        plugin.reread()
        await stage.offered(30)
        await stage.eventually(lambda: plugin.missing() == "")


async def test_without_a_driver_the_plugin_stays_up_and_reports_it(tmp_path: Path) -> None:
    """No driver: not ready, with the reason; nothing is registered and nothing crashes.

    No metric of a GPU is there, which is what GpusharePluginDown fires by.
    """
    driver = FakeDriver(t4(9))
    driver.absent = True
    of_gpu = {"gpu": "9", "uuid": t4(9).uuid}
    async with Stage(tmp_path, driver) as stage:
        assert stage.plugin is not None
        plugin = stage.plugin
        await stage.eventually(lambda: plugin.missing() == "no driver")
        assert stage.kubelet.registrations == []
        assert REGISTRY.get_sample_value("gpushare_gpu_units", of_gpu) is None


async def test_the_label_that_oversells_multiplies_memory(tmp_path: Path) -> None:
    """The vendor's oversell label offers memory several times over, and compute once."""
    stage = Stage(tmp_path)
    stage.labels = {"gpushare": "true", "ack.node.gpu.schedule.oversell": "2"}
    async with stage:
        await stage.offered(60)
        await stage.offered(200, "aliyun.com/gpu-core.percentage")


async def test_the_label_that_disables_cgpu_reaches_containers_at_once(tmp_path: Path) -> None:
    """B7: CGPU_DISABLE follows the label without a restart."""
    async with Stage(tmp_path) as stage:
        await stage.offered(30)
        stage.label(gpushare="true", **{"cgpu.disable.isolation": "true"})
        assert stage.plugin is not None
        state = stage.plugin.state
        await stage.eventually(lambda: state.policy.cgpu_disable)
        stage.create("p", {"gpu-mem": 1})
        await stage.admitted("p")
        assert stage.kubelet.envs("p")["CGPU_DISABLE"] == "true"


async def test_an_oversold_list_that_kubelet_could_not_read_is_not_sent(tmp_path: Path) -> None:
    """MiB devices that fit once do not fit three times over: none is offered, and it is logged."""
    stage = Stage(tmp_path, memory_unit="MiB")
    async with stage:
        await stage.offered(32260)
        stage.label(gpushare="true", **{"ack.node.gpu.schedule.oversell": "3"})
        await stage.offered(0)
        stage.label(gpushare="true")
        await stage.offered(32260)


@pytest.mark.parametrize("numa_hints", [False, True])
def test_the_reckoned_size_of_a_list_is_that_of_the_real_message(*, numa_hints: bool) -> None:
    """The arithmetic behind the refusal agrees with the encoder to the byte."""
    gpus = tuple(
        Gpu(GpuIndex(i), GpuUuid(t4(i).uuid), mib // 1024, memory_mib=mib, numa=1, healthy=False)
        for i, mib in enumerate((16130, 143771, 1024))
    )
    state = NodeState(GrantPolicy())
    state.equip(Inventory(gpus=gpus))
    servicer = Servicer(state, Resource.MEM, patience_seconds=0, numa_hints=numa_hints)
    assert servicer.devices().ByteSize() == list_bytes(gpus, GIB, numa=numa_hints)
