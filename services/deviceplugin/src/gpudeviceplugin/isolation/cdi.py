"""The CDI files of this node: what a container runtime applies over a pod's own environment.

A file appears and changes by a rename, so the runtime never reads half of one. Files that no
container can refer to any more are removed after kubelet has reported its allocations.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Literal

import structlog

from gpucore.node.isolation.cdi import (
    CDI_KIND,
    CdiDevice,
    Support,
    orphans,
    read_device,
    support_of,
)
from gpucore.wire.node.spec import Node

log = structlog.get_logger()

Mode = Literal["auto", "on", "off"]
NOTED_SECONDS: Final = 60.0
"""A device granted less than this ago stays, though kubelet may not list its container yet."""
_PREFIX: Final = CDI_KIND.replace("/", "-") + "_"


class CdiFiles:
    """Our files in the runtime's CDI directory. Not safe for several threads."""

    def __init__(
        self, directory: Path, mode: Mode, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._mode = mode
        self._clock = clock
        self._devices: dict[str, CdiDevice] | None = None
        self._granted: dict[str, float] = {}
        self._reported = False

    def used_on(self, node: Node) -> bool:
        """Shares of this node are delivered by CDI."""
        if self._mode != "auto":
            return self._mode == "on"
        if support_of(node.kubelet, node.runtime) is Support.NONE:
            return False
        writable = os.access(self._directory, os.W_OK | os.X_OK)
        if not writable and not self._reported:
            log.warning("no CDI: the directory is not writable", directory=str(self._directory))
        self._reported = not writable
        return writable

    def certain_on(self, node: Node) -> bool:
        """Whether the runtime of this node is certain to apply these files."""
        if not self.used_on(node):
            return False
        return self._mode == "on" or support_of(node.kubelet, node.runtime) is Support.CERTAIN

    def deliver(self, device: CdiDevice) -> None:
        """Have the file of a device that is being granted.

        Raises:
            OSError: the file cannot be written.
        """
        self._write(device)
        self._granted[device.name] = self._clock()

    def restore(self, held: Mapping[str, CdiDevice]) -> None:
        """Have the files of all devices that containers hold; remove none."""
        try:
            for device in held.values():
                self._write(device)
        except OSError as error:
            log.warning("cannot bring the CDI files up to date", why=str(error))

    def sync(self, held: Mapping[str, CdiDevice], initialized: Collection[frozenset[str]]) -> None:
        """Have the files of all devices that containers hold, and remove those of no container.

        Args:
            held: devices by name.
            initialized: see :func:`gpucore.node.isolation.cdi.orphans`.
        """
        self.restore(held)
        now = self._clock()
        self._granted = {name: at for name, at in self._granted.items() if now - at < NOTED_SECONDS}
        try:
            for name in orphans(self._known(), held.keys() | self._granted.keys(), initialized):
                self._path(name).unlink(missing_ok=True)
                del self._known()[name]
        except OSError as error:
            log.warning("cannot remove CDI files", why=str(error))

    def _write(self, device: CdiDevice) -> None:
        path = self._path(device.name)
        if self._known().get(device.name) == device and path.exists():
            return
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(device.spec)
        unfinished.replace(path)
        self._known()[device.name] = device

    def _known(self) -> dict[str, CdiDevice]:
        """What is written; read once, from what an earlier plugin left."""
        if self._devices is None:
            self._devices = {}
            for path in self._directory.glob(f"{_PREFIX}*.json"):
                device = read_device(path.read_bytes())
                if device is not None and self._path(device.name) == path:
                    self._devices[device.name] = device
        return self._devices

    def _path(self, name: str) -> Path:
        return self._directory / f"{_PREFIX}{name}.json"
