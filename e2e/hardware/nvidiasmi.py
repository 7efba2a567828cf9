"""What ``nvidia-smi`` reports: the yardstick that the plugin's own view of the GPUs is held to.

Only queries are made; nothing on a GPU is ever set.
"""

import shutil
import subprocess
from dataclasses import dataclass, replace
from typing import Final

COMMAND: Final = "nvidia-smi"
ANSWER_SECONDS: Final = 60
_GPU_FIELDS: Final = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "driver_version",
    "compute_mode",
    "mig.mode.current",
)
_RECOVERY_FIELDS: Final = ("uuid", "gpu_recovery_action")
_NO_RECOVERY: Final = "None"
_PROCESS_FIELDS: Final = ("gpu_uuid", "pid", "used_memory")


@dataclass(frozen=True)
class SmiGpu:
    """A GPU as nvidia-smi lists it.

    Attributes:
        memory_mib: total memory in MiB; 0 where nvidia-smi reports none.
        recovery: that the driver requires, such as "Drain and Reset"; empty for none, and with
            drivers that do not report it.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    driver: str
    compute_mode: str
    mig: bool
    recovery: str = ""


class SmiError(Exception):
    """nvidia-smi is missing, or there is no driver for it to ask."""


def listed() -> tuple[SmiGpu, ...]:
    """All GPUs of this machine.

    Raises:
        SmiError: nobody can say.
    """
    gpus = parse_gpus(_query(f"--query-gpu={','.join(_GPU_FIELDS)}"))
    try:
        required = parse_recoveries(_query(f"--query-gpu={','.join(_RECOVERY_FIELDS)}"))
    except SmiError:  # nvidia-smi of a driver before 565 has no such field
        return gpus
    return tuple(replace(gpu, recovery=required.get(gpu.uuid, "")) for gpu in gpus)


def processes(uuid: str) -> dict[int, int]:
    """MiB in use on a GPU by the process id of each compute process."""
    text = _query(f"--query-compute-apps={','.join(_PROCESS_FIELDS)}")
    return parse_processes(text, uuid)


def parse_gpus(text: str) -> tuple[SmiGpu, ...]:
    """The GPUs in the CSV of nvidia-smi, without header and units."""
    return tuple(
        SmiGpu(
            index=int(index),
            uuid=uuid,
            model=model,
            memory_mib=int(memory) if memory.isdecimal() else 0,
            driver=driver,
            compute_mode=mode,
            mig=mig == "Enabled",
        )
        for index, uuid, model, memory, driver, mode, mig in _rows(text)
    )


def parse_recoveries(text: str) -> dict[str, str]:
    """Required recoveries by UUID; values in brackets, such as ``[N/A]``, are no recovery."""
    found = dict(_rows(text))
    return {
        uuid: action
        for uuid, action in found.items()
        if action != _NO_RECOVERY and not action.startswith("[")
    }


def parse_processes(text: str, uuid: str) -> dict[int, int]:
    """MiB by process id on one GPU; memory that is not reported counts as none."""
    found = [(int(pid), used) for gpu, pid, used in _rows(text) if gpu == uuid]
    return {pid: int(used) if used.isdecimal() else 0 for pid, used in found}


def _rows(text: str) -> list[list[str]]:
    lines = filter(None, map(str.strip, text.splitlines()))
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def _query(question: str) -> str:
    if shutil.which(COMMAND) is None:
        raise SmiError(f"{COMMAND} is not on PATH, so there is no NVIDIA driver here")
    argv = [COMMAND, question, "--format=csv,noheader,nounits"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    if done.returncode:
        raise SmiError(f"{COMMAND} cannot ask the driver: {(done.stdout + done.stderr).strip()}")
    return done.stdout
