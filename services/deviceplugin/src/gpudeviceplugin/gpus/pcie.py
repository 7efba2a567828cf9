"""The PCIe root of a GPU, as sysfs has it."""

import re
from pathlib import Path
from typing import Final

SYS_DEVICES: Final = Path("/sys/bus/pci/devices")
_BUS_ID: Final = re.compile(r"(?P<domain>[0-9a-f]{1,8}):(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_ROOT: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def pcie_root(bus_id: str, devices: Path = SYS_DEVICES) -> str:
    """The root, such as ``pci0000:3a``; empty unknown.

    Args:
        bus_id: as NVML writes it: ``00000000:3B:00.0``.
        devices: directory with a link for every PCI device.
    """
    match = _BUS_ID.fullmatch(bus_id.lower())
    if match is None:
        return ""
    device = devices / f"{int(match['domain'], 16):04x}:{match['rest']}"
    return next((part for part in device.resolve().parts if _ROOT.fullmatch(part)), "")
