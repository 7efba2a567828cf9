"""Units are counted from the memory that programs can have."""

import pytest

from gpucore.units import GIB, MemoryUnit
from gpudeviceplugin.gpus.devices import DriverGpu, MigInstance, NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of

H200 = 143771
RESERVED = 610


def machine(reserved_mib: int = RESERVED, *, memory_mib: int = H200) -> NodeHardware:
    """One GPU with so much reserved by its driver."""
    gpu = DriverGpu(0, "GPU-0", "H200", memory_mib, reserved_mib=reserved_mib)
    return NodeHardware("570.1", (gpu,))


@pytest.mark.parametrize(
    ("reserved", "more", "units"),
    [(RESERVED, 0, 139), (0, 0, 140), (-1, 0, 140), (RESERVED, 1024, 138), (0, 412, 139)],
    ids=["driver", "nothing", "unknown", "driver and operator", "operator"],
)
def test_units_are_counted_from_memory_that_is_not_reserved(
    reserved: int, more: int, units: int
) -> None:
    """The total of an H200 holds 140 GiB and 411 MiB; its driver keeps 610 MiB of them."""
    (gpu,) = inventory_of(machine(reserved), GIB, reserve_mib=more).gpus
    assert gpu.units == units
    assert gpu.memory_mib == H200
    assert gpu.reserved_mib == max(reserved, 0) + more
    assert gpu.units * GIB.mib <= gpu.allocatable_mib


def test_a_reserve_beyond_the_memory_leaves_no_unit() -> None:
    """A setting that is too large offers nothing, and breaks nothing."""
    (gpu,) = inventory_of(machine(memory_mib=4096), GIB, reserve_mib=9000).gpus
    assert (gpu.units, gpu.allocatable_mib) == (0, 0)


def test_every_instance_keeps_its_reserve() -> None:
    """What driver and operator reserve is kept in every MIG instance."""
    instances = (
        MigInstance(0, "MIG-0", "1g", 9856, reserved_mib=20),
        MigInstance(1, "MIG-1", "1g", 9856),
    )
    device = DriverGpu(0, "GPU-0", "A100", 40960, mig=True, slots=7, instances=instances)
    inventory = inventory_of(NodeHardware("570.1", (device,)), MemoryUnit(1), reserve_mib=100)
    assert [gpu.units for gpu in inventory.gpus] == [9736, 9756]
