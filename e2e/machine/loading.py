"""A disk with container images: the machine is booted once to import them, which takes minutes."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from host import cachedir, docker
from host.progress import step
from machine import nodefiles
from machine.disk import Disk
from machine.qemu import Qemu

IMPORT_SECONDS: Final = 2400
_IMPORT: Final = "ctr --namespace k8s.io images import /dev/vdc"


def ensure(disk: Disk, images: Sequence[str]) -> Path:
    """The disk with these images of the engine in its containerd, made if needed.

    Raises:
        SetupError: the import failed.
    """
    key = cachedir.content_key([disk.folder.name, *images, _IMPORT])

    def fill(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="preload-") as name:
            _load(disk, Path(name), images).rename(folder / "loaded.qcow2")

    return cachedir.entry("machine-images", key, fill) / "loaded.qcow2"


def _load(disk: Disk, folder: Path, images: Sequence[str]) -> Path:
    files = nodefiles.write_key(folder, Qemu.make_key(folder))
    kept = folder / "images.tar"
    docker.save(images, kept)
    machine = Qemu(disk, folder, base=disk.root, seeds=(files, kept), ports={})
    try:
        with step("boot the machine"):
            machine.power_on()
        with step("import the images in the machine"):
            machine.shell(_IMPORT, seconds=IMPORT_SECONDS)
        machine.power_off()
    finally:
        machine.stop()
    return machine.overlay
