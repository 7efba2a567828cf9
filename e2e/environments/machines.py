"""The mock machines of a cluster's workers, as folders on the host that the nodes mount.

Each worker gets a folder of its own with its description (`machine`) and its state (`state`), which
a case may edit while the cluster runs: the nodes see the same file. The mock library (`nvml`) and
the stand-in for the MPS control program (`mps`) are in it too, so that a cluster that is kept gets
the ones of today.
"""

import configparser
import shutil
from pathlib import Path

from environments.environment import MachineGpu
from mocknvml import build

IN_NODE = "/opt/gpushare/machine"
LIBRARY_IN_NODE = f"{IN_NODE}/nvml"
MIB_PER_UNIT = 1024
MPS = Path(__file__).parents[1] / "standins" / "mps"
MPS_CONTROL = "mps/nvidia-cuda-mps-control"
"""Below the folder of the machine."""


def write_files(folder: Path, machine: str) -> None:
    """Write the machine's description into ``folder``, healthy; an edited state is reset."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(build.machine(machine), folder / "machine")
    (folder / "state").write_text(state())
    _put_library(folder / "nvml")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(MPS, folder / "mps", ignore=ignored, dirs_exist_ok=True)


def state(*lines: str) -> str:
    """The text of a state file: these lines, of a driver that lists processes as those of today."""
    return "".join(f"{line}\n" for line in ("driver lists_pid_namespace", *lines))


def _put_library(folder: Path) -> None:
    """By a rename: a plugin that runs keeps the library that it has mapped."""
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{build.LIBRARY}.new"
    shutil.copyfile(build.ensure() / build.LIBRARY, fresh)
    fresh.replace(folder / build.LIBRARY)


def gpus(machine: str) -> tuple[MachineGpu, ...]:
    """The GPUs of a description, read without help of the library or the stack."""
    text = configparser.ConfigParser(allow_no_value=True, delimiters=("=",), strict=False)
    with build.machine(machine).open() as file:
        text.read_file(file)
    shared = dict(text["gpu *"]) if text.has_section("gpu *") else {}
    found: list[MachineGpu] = []
    while text.has_section(f"gpu {len(found)}"):
        own = {**shared, **text[f"gpu {len(found)}"]}
        reserved = 0 if _lacks_memory_v2(text) else int(own.get("reserved_mib", "0"))
        units = (int(own["memory_mib"]) - reserved) // MIB_PER_UNIT
        found.append(MachineGpu(len(found), own["uuid"], units))
    return tuple(found)


def _lacks_memory_v2(text: configparser.ConfigParser) -> bool:
    """A driver before 510: it does not say how much memory it reserves."""
    return "nvmlDeviceGetMemoryInfo_v2" in text["driver"].get("missing", "").split()
