"""The PCIe root of a GPU."""

from pathlib import Path

import pytest

from gpucore.units import GIB
from gpudeviceplugin.gpus.devices import DriverGpu, MigInstance, NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.gpus.pcie import pcie_root


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """The directory of PCI devices, with one GPU behind a bridge."""
    gpu = tmp_path / "devices" / "pci0000:3a" / "0000:3a:00.0" / "0000:3b:00.0"
    gpu.mkdir(parents=True)
    links = tmp_path / "bus" / "pci" / "devices"
    links.mkdir(parents=True)
    (links / "0000:3b:00.0").symlink_to(gpu)
    return links


def test_the_root_is_found_through_every_bridge(devices: Path) -> None:
    """NVML writes eight digits of the domain and capitals, sysfs four digits and small letters."""
    assert pcie_root("00000000:3B:00.0", devices) == "pci0000:3a"


@pytest.mark.parametrize("bus_id", ["", "00000000:3C:00.0", "../../etc", "00000001:3B:00.0"])
def test_a_device_that_sysfs_does_not_have_has_no_root(devices: Path, bus_id: str) -> None:
    """Unknown stays unknown."""
    assert pcie_root(bus_id, devices) == ""


def test_a_mig_instance_has_the_root_of_its_gpu() -> None:
    """It is a part of that device."""
    instances = (MigInstance(0, "MIG-1", "1g.5gb", 4864),)
    gpus = (
        DriverGpu(0, "GPU-0", "A100", 40960, pcie_root="pci0000:3a"),
        DriverGpu(
            1, "GPU-1", "A100", 40960, mig=True, slots=7, instances=instances, pcie_root="pci1"
        ),
    )
    found = inventory_of(NodeHardware("535.1", gpus), GIB)
    assert [gpu.pcie_root for gpu in found.gpus] == ["pci0000:3a", "pci1"]
