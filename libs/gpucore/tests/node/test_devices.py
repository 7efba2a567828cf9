"""Device ids name GPUs, and their list fits kubelet's message or is refused with a way out."""

import pytest

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import (
    MESSAGE_LIMIT,
    Resource,
    device_table,
    list_bytes,
    smallest_unit,
)
from gpucore.units import GIB, MIB, GpuIndex, GpuUuid, MemoryUnit
from gpucore.wire.names import Names

H200 = 143771


def gpu(index: int, memory_mib: int = 16130, **more: object) -> Gpu:
    uuid = GpuUuid(f"GPU-00000000-0000-0000-0000-{index:012}")
    return Gpu(GpuIndex(index), uuid, memory_mib // 1024, memory_mib=memory_mib, **more)  # type: ignore[arg-type]


def test_every_unit_of_every_gpu_is_a_device_that_names_its_gpu() -> None:
    """GPUs of different sizes have as many memory ids as they have units, each under its uuid."""
    inventory = Inventory(gpus=(gpu(0), gpu(1, 40960)))
    table = device_table(inventory, Resource.MEM)
    assert [len(ids) for ids in table.ids.values()] == [15, 40]
    assert table.ids[GpuIndex(1)][39] == f"{inventory.gpus[1].uuid}-_-39"
    assert all(table.owner[one] == device for device, ids in table.ids.items() for one in ids)


def test_compute_is_a_hundred_devices_a_gpu_and_a_whole_gpu_is_its_uuid() -> None:
    """Percent ids number 100 a GPU; the resource of exclusive GPUs has the bare uuid."""
    inventory = Inventory(gpus=(gpu(0), gpu(1)))
    assert len(device_table(inventory, Resource.CORE).owner) == 200
    assert set(device_table(inventory, Resource.GPU).owner) == {g.uuid for g in inventory.gpus}


def test_oversold_memory_has_more_devices_and_compute_has_not() -> None:
    """A node that oversells offers each unit of memory several times, compute once."""
    inventory = Inventory(gpus=(gpu(0),))
    assert len(device_table(inventory, Resource.MEM, oversell=2).owner) == 30
    assert len(device_table(inventory, Resource.CORE, oversell=2).owner) == 100


def test_ids_do_not_change_with_the_order_of_the_gpus() -> None:
    """Stable ids: a GPU keeps its ids whatever its index becomes."""
    one = device_table(Inventory(gpus=(gpu(0), gpu(1))), Resource.MEM)
    swapped = (
        Gpu(GpuIndex(0), gpu(1).uuid, 15),
        Gpu(GpuIndex(1), gpu(0).uuid, 15),
    )
    other = device_table(Inventory(gpus=swapped), Resource.MEM)
    assert set(one.owner) == set(other.owner)
    assert one.ids[GpuIndex(0)] == other.ids[GpuIndex(1)]


def test_the_lowest_ids_are_picked_and_required_ones_come_first() -> None:
    """Required ids are kept; the rest are the lowest available ones of the wanted GPU."""
    table = device_table(Inventory(gpus=(gpu(0), gpu(1))), Resource.MEM)
    ids = table.ids[GpuIndex(1)]
    picked = table.pick({GpuIndex(1): 3}, among=frozenset(ids) - {ids[0]}, first=(ids[7],))
    assert picked == (ids[7], ids[1], ids[2])


def test_eight_large_gpus_fit_in_gib_and_do_not_fit_in_mib() -> None:
    """8 x 141 GB: 1,120 devices are harmless, 1,150,168 are far over kubelet's 4 MiB."""
    gpus = [gpu(index, H200) for index in range(8)]
    assert list_bytes(gpus, GIB) < MESSAGE_LIMIT // 50
    assert list_bytes(gpus, MIB) > 10 * MESSAGE_LIMIT


@pytest.mark.parametrize("numa", [False, True], ids=["plain", "numa"])
@pytest.mark.parametrize("indexes", [1, 2, 8])
def test_the_smallest_unit_fits_and_one_mib_less_does_not(indexes: int, *, numa: bool) -> None:
    """The unit that a refusal names is exact: it fits, and the next smaller size does not."""
    gpus = [gpu(index, H200) for index in range(indexes)]
    unit = smallest_unit(gpus, numa=numa)
    assert list_bytes(gpus, unit, numa=numa) <= MESSAGE_LIMIT
    assert unit.mib > 1
    assert list_bytes(gpus, MemoryUnit(unit.mib - 1), numa=numa) > MESSAGE_LIMIT


def test_small_gpus_fit_in_mib() -> None:
    """B2: two GPUs of 16130 MiB are 32,260 devices in MiB, which fit, so MiB is the smallest."""
    gpus = [gpu(0), gpu(1)]
    assert list_bytes(gpus, MIB) <= MESSAGE_LIMIT
    assert smallest_unit(gpus) == MIB


def test_resources_have_the_domain_of_the_cluster() -> None:
    """The domain is one setting; the parts after it are fixed."""
    names = Names("example.org")
    assert Resource.MEM.full_name(names) == names.gpu_mem
    assert Resource.CORE.full_name(names) == names.gpu_core
    assert Resource.GPU.full_name(names) == names.gpu
