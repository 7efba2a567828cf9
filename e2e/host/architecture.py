"""Processor architectures by their names: of Kubernetes and Go, and of Linux and Python."""

import platform
from dataclasses import dataclass
from typing import Final

from host.errors import SetupError


@dataclass(frozen=True)
class Architecture:
    """A processor architecture.

    Attributes:
        name: in Kubernetes, Go, Debian and images, such as `arm64`.
        machine: in Linux and Python, such as `aarch64`.
    """

    name: str
    machine: str

    @property
    def foreign(self) -> bool:
        """Whether this machine runs its programs only with an emulator."""
        return self.machine != platform.machine()

    @property
    def compiler(self) -> str:
        """The C compiler on this machine that compiles for it."""
        return f"{self.machine}-linux-gnu-gcc" if self.foreign else "gcc"

    def suffix(self) -> str:
        """`-arm64` in names of what is made for another architecture than this machine's."""
        return suffix(self.machine)


ALL: Final = (Architecture("amd64", "x86_64"), Architecture("arm64", "aarch64"))


def named(name: str) -> Architecture:
    """The architecture of this name, this machine's where the name is empty.

    Raises:
        SetupError: nothing is built for it.
    """
    for each in ALL:
        if each.name == name or (not name and not each.foreign):
            return each
    names = ", ".join(each.name for each in ALL)
    raise SetupError(f"architecture {name or platform.machine()!r} is none of {names}")


def of_machine(machine: str) -> str:
    """The name of the architecture of a machine; of one that is not listed, the machine's own."""
    return next((each.name for each in ALL if each.machine == machine), machine)


def suffix(machine: str) -> str:
    """`-arm64` for `aarch64`; empty for the machine that this is."""
    return "" if machine == platform.machine() else f"-{of_machine(machine)}"
