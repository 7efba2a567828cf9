"""The programs of this machine that make and run the one in QEMU, installed where they lack."""

from typing import Final

from host import apt, architecture
from host.errors import SetupError
from host.privilege import can_be_root, installed
from host.progress import step

PACKAGES: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "setpriv": "util-linux",
}
"""Debian's package by the program that is needed of it."""
_ARCHITECTURE: Final = "amd64"


def ensure() -> None:
    """Return when all of them are there.

    Raises:
        SetupError: this machine cannot run the other; states why.
    """
    if architecture.named("").name != _ARCHITECTURE:
        raise SetupError(f"the machine in QEMU is made on {_ARCHITECTURE} only")
    if not can_be_root():
        raise SetupError("making the disk of the machine in QEMU needs root or passwordless sudo")
    missing = [package for program, package in PACKAGES.items() if not installed(program)]
    if missing:
        with step(f"install {', '.join(missing)}"):
            _install(missing)


def _install(packages: list[str]) -> None:
    if not installed("apt-get"):
        raise SetupError(f"install {', '.join(packages)}: apt-get is not on this machine")
    apt.install(*packages)
