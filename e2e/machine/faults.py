"""Faults of a machine that a case makes and undoes: its clock, its disk, its swap space."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from environments.waiting import until
from host.errors import SetupError
from machine.qemu import Qemu

KUBELET_CONFIG: Final = "/var/lib/kubelet/config.yaml"
_SWAP: Final = "/swap"
_SWAP_MIB: Final = 256
_SMALL_KIB: Final = 256
_FILLER: Final = "filler"


def clock_offset(machine: Qemu) -> float:
    """Seconds by which the clock of the machine is ahead of the one here."""
    return float(machine.shell("date +%s.%N")) - time.time()


def set_clock(machine: Qemu, ahead: float) -> None:
    """Set the clock of the machine, in one step, to so many seconds ahead of the one here."""
    machine.shell(f"date -s @{time.time() + ahead:.3f}")


@contextmanager
def swap(machine: Qemu) -> Iterator[None]:
    """Swap space in use, for as long as the context lasts."""
    made = f"fallocate -l {_SWAP_MIB}M {_SWAP} && chmod 600 {_SWAP} && mkswap {_SWAP}"
    machine.shell(f"{made} && swapon {_SWAP}")
    try:
        yield
    finally:
        machine.shell(f"swapoff {_SWAP} && rm {_SWAP}")


@contextmanager
def full(machine: Qemu, folder: str) -> Iterator[None]:
    """A file system without a free block, by a file in one of its folders.

    Most of it is allocated without a write, which takes an emulated machine minutes.
    """
    file = f"{folder}/{_FILLER}"
    free = f"$(( $(stat -f -c '%a*%S' {folder}) ))"
    rest = f"for size in 1M 4k; do dd if=/dev/zero bs=$size >>{file} 2>/dev/null; done"
    machine.shell(f"fallocate -l {free} {file}; {rest}; true")
    try:
        yield
    finally:
        machine.shell(f"rm -f {file}")


@contextmanager
def small_directory(machine: Qemu, folder: str) -> Iterator[None]:
    """A directory on a file system of its own with few blocks; what is below it is hidden."""
    machine.shell(f"mount -t tmpfs -o size={_SMALL_KIB}k,mode=0700 small {folder}")
    try:
        yield
    finally:
        machine.shell(f"umount {folder}")


@contextmanager
def read_only_root(machine: Qemu) -> Iterator[None]:
    """The root file system read-only at once, whoever writes, as the kernel does after an error."""
    machine.shell("echo u > /proc/sysrq-trigger")
    until("the root is read-only", lambda: not writable(machine, "/var/lib/kubelet"))
    try:
        yield
    finally:
        machine.shell("mount -o remount,rw /")


def pin_images(machine: Qemu) -> None:
    """Keep kubelet from removing container images for space: no registry has them."""
    listed = "ctr --namespace k8s.io images list --quiet"
    label = "ctr --namespace k8s.io images label {} io.cri-containerd.pinned=pinned"
    machine.shell(f"for each in $({listed}); do {label.format('$each')}; done")
    machine.shell("systemctl restart containerd")


def writable(machine: Qemu, folder: str) -> bool:
    """Whether a file of one block can be written to a folder."""
    file = f"{folder}/probe"
    try:
        machine.shell(
            f"dd if=/dev/zero of={file} bs=4k count=1 2>/dev/null; rc=$?; rm -f {file}; exit $rc"
        )
    except SetupError:
        return False
    return True


def configure_kubelet(machine: Qemu, **settings: Any) -> None:
    """Change the configuration that kubeadm wrote for kubelet, and restart it."""
    config = yaml.safe_load(machine.shell(f"cat {KUBELET_CONFIG}"))
    text = json.dumps(config | settings)
    machine.shell(f"cat > {KUBELET_CONFIG} <<'END'\n{text}\nEND\nsystemctl restart kubelet")


def tasks(machine: Qemu) -> list[str]:
    """Containers that run, by containerd."""
    lines = machine.shell("ctr --namespace k8s.io tasks list").splitlines()
    return sorted(line.split()[0] for line in lines if line.endswith("RUNNING"))
