"""The share that was requested is the share that arrives: variables, CDI, the GPU itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuprobe.checks import answers as reading
from gpuprobe.checks.verdicts import Answer, Proof, Step, judged

ALONE: Final = "alone"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
BY_CDI: Final = "void"
"""Of ``NVIDIA_VISIBLE_DEVICES``: the runtime adds the GPUs as CDI devices, and names none here."""


@dataclass(frozen=True, kw_only=True)
class RequestedShare:
    """What a pod requested, and what the scheduler and the node published about it.

    Attributes:
        units, unit_mib: the request, in units of this size.
        index, uuid: the GPU in the pod's annotation, and its UUID in the node's inventory.
        assigned_units: units in the pod's annotation.
        confirmed: the plugin confirmed that kubelet allocated that GPU.
        mode: isolation mode of the GPU.
        prefix: of the variables of the first generation.
    """

    units: int
    unit_mib: int
    index: int | None
    uuid: str
    assigned_units: int
    confirmed: bool
    mode: str
    prefix: str = "ALIYUN_COM"

    @property
    def allocated_mib(self) -> int:
        """The share in MiB."""
        return self.units * self.unit_mib


def steps(inner: Iterable[Step] = ()) -> list[Step]:
    """Report the environment, and run commands in a first process."""
    return [
        {"do": "environment"},
        {"do": "child", "name": ALONE, "steps": list(inner)},
        {"do": "leave", "name": ALONE},
    ]


def described(answers: Sequence[Answer]) -> Mapping[str, Any]:
    """What CUDA reported to the first process.

    Raises:
        MissingAnswerError: it could not open a GPU.
    """
    return reading.step(reading.child(answers, ALONE), 0)


def first_process(answers: Sequence[Answer]) -> list[Answer]:
    """The answers of the first process, its description first.

    Raises:
        MissingAnswerError: it did not run.
    """
    return reading.child(answers, ALONE)


def share_proof(asked: RequestedShare, answers: Sequence[Answer]) -> Proof:
    """The row ``share``: the container has the GPU and the amounts of its request.

    Raises:
        MissingAnswerError: the container did not report.
    """
    found = reading.first(answers, "environment")
    variables, cuda = found["variables"], described(answers)
    faults = [*_amounts(asked, variables), *_gpu(asked, variables, cuda)]
    figures = {
        "requested_mib": asked.allocated_mib,
        "gpus_seen": cuda["gpus_seen"],
        "device_files": len(found["devices"]),
    }
    return judged(
        "share",
        holds=not faults,
        expected=f"{asked.units} units of {asked.unit_mib} MiB on one GPU, {asked.uuid}",
        seen="; ".join(faults) or _arrived(asked, variables),
        next_step=(
            "compare the node's CDI files (/var/run/cdi) with the pod's annotations, and check"
            " its container runtime: gpushare doctor"
        ),
        figures=figures,
    )


def _arrived(asked: RequestedShare, variables: Mapping[str, str]) -> str:
    if variables.get(VISIBLE) == BY_CDI:
        return (
            f"CUDA names that GPU, which came by CDI, and the variables {asked.allocated_mib} MiB"
        )
    return f"variables and CUDA name that GPU and {asked.allocated_mib} MiB"


def _amounts(asked: RequestedShare, variables: Mapping[str, str]) -> Iterable[str]:
    wanted = {
        f"{asked.prefix}_GPU_MEM_CONTAINER": str(asked.units),
        f"{asked.prefix}_GPU_MEM_POD": str(asked.units),
        "GPUSHARE_MEM_LIMIT_MIB": str(asked.allocated_mib),
    }
    if "driver" in asked.mode:
        wanted["NVIDIA_GPU_MEMORY_LIMIT"] = str(asked.allocated_mib)
    elif asked.mode == "mps":
        wanted["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={asked.allocated_mib}M"
    for name, expected in wanted.items():
        if variables.get(name) != expected:
            yield f"{name} is {variables.get(name, 'not set')}, not {expected}"


def _gpu(
    asked: RequestedShare, variables: Mapping[str, str], cuda: Mapping[str, Any]
) -> Iterable[str]:
    visible = variables.get(VISIBLE, "not set")
    if visible not in {asked.uuid, str(asked.index), BY_CDI}:
        yield f"{VISIBLE} is {visible}"
    if cuda["gpus_seen"] != 1:
        yield f"CUDA sees {cuda['gpus_seen']} GPUs"
    if cuda["uuid"] != asked.uuid:
        yield f"CUDA sees GPU {cuda['uuid']}"


def accounting_proof(asked: RequestedShare, answers: Sequence[Answer]) -> Proof:
    """The row ``accounting``: each component has the same GPU and the same amount.

    Raises:
        MissingAnswerError: the container did not report.
    """
    variables = reading.first(answers, "environment")["variables"]
    index = variables.get(f"{asked.prefix}_GPU_MEM_IDX", "none")
    kubelet = f"{variables.get(f'{asked.prefix}_GPU_MEM_CONTAINER', 'no')} units on GPU {index}"
    scheduler = f"{asked.assigned_units} units on GPU {asked.index}"
    process = f"GPU {described(answers)['uuid']}"
    agree = [
        scheduler == kubelet == f"{asked.units} units on GPU {asked.index}",
        process == f"GPU {asked.uuid}",
        asked.confirmed,
    ]
    confirmed = "" if asked.confirmed else "; the plugin has not confirmed the allocation"
    return judged(
        "accounting",
        holds=all(agree),
        expected=f"{asked.units} units on GPU {asked.index} ({asked.uuid}) everywhere",
        seen=f"scheduler: {scheduler}; kubelet: {kubelet}; process: {process}{confirmed}",
        next_step="run gpushare doctor; read the log of the device plugin on the node",
        figures={"scheduler_units": asked.assigned_units, "requested_units": asked.units},
    )
