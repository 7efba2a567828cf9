"""Indexes of GPUs and MIG instances, and the limit of the device list."""

from itertools import permutations

import pytest
from fakedriver import t4
from msgspec.structs import replace

from gpucore.node.allocation.device_ids import list_bytes
from gpucore.units import GIB
from gpudeviceplugin.gpus.devices import NO_INSTANCE, DriverGpu, MigInstance, NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of, unit_refusal


def cut(index: int, *slots: int, most: int = 7) -> DriverGpu:
    """A GPU in MIG mode with up to seven instances, or ``most``."""
    instances = tuple(MigInstance(slot, f"MIG-{index}-{slot}", "1g", 4864) for slot in slots)
    return DriverGpu(
        index, f"GPU-{index}", "A100", 40960, minor=index + 4, numa=1, mig=True, slots=most,
        instances=instances,
    )  # fmt: skip


def test_an_instance_keeps_its_index_while_it_stays_in_its_slot() -> None:
    """Whatever else is created, and also while another GPU does not answer."""
    machine = NodeHardware("570.1", (cut(0, 0, 6), cut(1, 0)), links={"0-1": ("SYS",)})
    inventory = inventory_of(machine, GIB)
    found = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    assert found == {"MIG-0-0": 2, "MIG-0-6": 8, "MIG-1-0": 9}
    assert [gpu.index for gpu in inventory.gpus] == [2, 8, 9]
    assert (inventory.links, inventory.driver) == ({}, "570.1")
    silent = inventory_of(NodeHardware("570.1", (cut(1, 0, 3),), silent={0: "is lost"}), GIB)
    assert {gpu.uuid: gpu.index for gpu in silent.gpus} == {"MIG-1-0": 9, "MIG-1-3": 12}


@pytest.mark.parametrize("order", list(permutations((7, 4, 0, 0))))
def test_instances_of_gpus_of_two_kinds_have_different_indexes(order: tuple[int, ...]) -> None:
    """An A100 has up to seven instances and an A30 four; GPUs without MIG may stand between."""
    gpus = [
        cut(index, *range(most), most=most) if most else t4(index)
        for index, most in enumerate(order)
    ]
    inventory = inventory_of(NodeHardware("570.1", tuple(gpus)), GIB)
    assert len({gpu.index for gpu in inventory.gpus}) == len(inventory.gpus) == 13
    assert min(gpu.index for gpu in inventory.gpus if gpu.mig) == len(order) + slots_before(order)


def slots_before(order: tuple[int, ...]) -> int:
    """Slots before the first GPU in MIG mode: each GPU without it counts as the largest."""
    return 7 * next(index for index, most in enumerate(order) if most)


def test_an_instance_is_on_the_device_and_numa_node_of_its_gpu() -> None:
    """Its model and memory are its own, and it is never sliced again."""
    (gpu,) = inventory_of(NodeHardware("570.1", (cut(0, 3),)), GIB).gpus
    assert (gpu.minor, gpu.numa, gpu.mig) == (4, 1, True)
    assert (gpu.model, gpu.memory_mib, gpu.units) == ("1g", 4864, 4)


def test_compute_instances_that_share_a_gpu_instance_are_not_offered() -> None:
    """Each would be offered with the memory of all; the index of another stays that of its slot."""
    numbers = (2, 2, 9, NO_INSTANCE, NO_INSTANCE)
    instances = tuple(
        MigInstance(slot, f"MIG-{slot}", "1c.3g.20gb", 19968, gpu_instance=number)
        for slot, number in enumerate(numbers)
    )
    gpu = replace(cut(0), instances=instances)
    inventory = inventory_of(NodeHardware("570.1", (gpu,)), GIB)
    assert [(gpu.index, gpu.uuid) for gpu in inventory.gpus] == [
        (3, "MIG-2"),
        (4, "MIG-3"),
        (5, "MIG-4"),
    ]


def test_gpus_are_in_the_order_of_their_indexes() -> None:
    """Whatever the order of the driver."""
    inventory = inventory_of(NodeHardware("570.1", (t4(2), cut(1, 0), t4(0))), GIB)
    assert [gpu.index for gpu in inventory.gpus] == [0, 2, 10]


def test_a_gpu_has_the_figures_of_its_driver() -> None:
    """Index, device file, model and NUMA node."""
    (gpu,) = inventory_of(NodeHardware("570.1", (t4(3),)), GIB).gpus
    assert (gpu.index, gpu.minor, gpu.model, gpu.numa) == (3, 3, "Tesla T4", 1)
    assert (gpu.healthy, gpu.mig) == (True, False)


def test_a_list_as_long_as_kubelet_reads_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte more is refused, with both sizes."""
    inventory = inventory_of(NodeHardware("570.1", (t4(0), t4(1))), GIB)
    size = list_bytes(inventory.gpus, GIB, numa=True)
    monkeypatch.setattr("gpudeviceplugin.gpus.inventory.MESSAGE_LIMIT", size)
    assert unit_refusal(inventory, GIB, numa=True) == ""
    monkeypatch.setattr("gpudeviceplugin.gpus.inventory.MESSAGE_LIMIT", size - 1)
    assert f"has {size} bytes, but kubelet reads at most {size - 1}" in unit_refusal(
        inventory, GIB, numa=True
    )
    assert unit_refusal(inventory, GIB, numa=False) == ""
