"""Programs of another architecture on this machine: QEMU's user-mode emulator, run by the kernel.

The kernel opens the emulator when the format is registered (flag F), so containers and other root
file systems need no copy of it. A registration lasts until the next boot and changes nothing for
programs of this machine.
"""

from pathlib import Path
from typing import Final

from host import apt
from host.architecture import Architecture
from host.errors import SetupError
from host.privilege import as_root, can_be_root
from host.progress import step

FORMATS: Final = Path("/proc/sys/fs/binfmt_misc")
DESCRIPTIONS: Final = Path("/usr/lib/binfmt.d")
"""Where Debian's package describes the formats in the words of the kernel."""
_PACKAGE: Final = "qemu-user-static"


def ensure(
    architecture: Architecture, *, formats: Path = FORMATS, descriptions: Path = DESCRIPTIONS
) -> None:
    """Return when this machine runs programs of the architecture, in containers too.

    Raises:
        SetupError: the emulator or the kernel's registry of formats cannot be had.
    """
    if not architecture.foreign or registered(architecture, formats):
        return
    if not can_be_root():
        raise SetupError(
            f"{architecture.name} programs need an emulator: install {_PACKAGE} and register it "
            "with binfmt_misc, which takes root"
        )
    format_name = f"qemu-{architecture.machine}"
    _install(descriptions / f"{format_name}.conf")
    _register(formats, descriptions / f"{format_name}.conf")
    if not registered(architecture, formats):
        raise SetupError(f"the kernel did not register {format_name} in {formats} with flag F")


def registered(architecture: Architecture, formats: Path = FORMATS) -> bool:
    """True when the kernel runs programs of the architecture, in containers too."""
    try:
        lines = (formats / f"qemu-{architecture.machine}").read_text().splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags:")), "")
    return "enabled" in lines and "F" in flags


def _install(description: Path) -> None:
    if description.is_file():
        return
    with step(f"install {_PACKAGE}"):
        apt.install(_PACKAGE)


def _register(formats: Path, description: Path) -> None:
    with step(f"register {description.stem} with the kernel"):
        if not (formats / "register").exists():
            as_root(["mount", "-t", "binfmt_misc", "binfmt_misc", formats], timeout_s=30)
        if (formats / description.stem).exists():  # registered without F: once is all there can be
            as_root(["tee", formats / description.stem], timeout_s=30, stdin="-1")
        as_root(["tee", formats / "register"], timeout_s=30, stdin=description.read_text())
