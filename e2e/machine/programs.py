"""The programs of this machine that make and run the one in QEMU, installed where they lack."""

from typing import Final

from host import architecture
from host.errors import SetupError
from host.fetching import APT, with_retries
from host.privilege import as_root, can_be_root, installed
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
_INSTALL_SECONDS: Final = 900


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
            with_retries(lambda: _install(missing))


def _install(packages: list[str]) -> None:
    if not installed("apt-get"):
        raise SetupError(f"install {', '.join(packages)}: apt-get is not on this machine")
    options = [*APT, "install", "-y", "-q", "--no-install-recommends"]
    as_root(["apt-get", *options, *packages], timeout_s=_INSTALL_SECONDS)
