"""Everything that a machine in QEMU is started from, made on this machine if needed."""

from dataclasses import dataclass
from pathlib import Path

import offline
from cluster import engine
from images import build as images
from machine import disk, loading, programs
from machine.disk import Disk


@dataclass(frozen=True, kw_only=True)
class MachineInputs:
    """What one run needs.

    Attributes:
        version: of Kubernetes, without a `v`.
        built: the images of the stack.
        disk: with the kernel.
        loaded: the disk that has the images, too.
    """

    version: str
    built: images.Built
    disk: Disk
    loaded: Path


def ensure() -> MachineInputs:
    """All of it; minutes the first time, and more where Kubernetes is compiled.

    Raises:
        SetupError: this machine lacks something; the sentence states what.
    """
    programs.ensure()
    engine.ensure()
    version = offline.chosen_version()
    built = images.ensure()
    found = disk.ensure(version)
    loaded = loading.ensure(found, [built.deviceplugin, built.sample, found.pause])
    return MachineInputs(version=version, built=built, disk=found, loaded=loaded)
