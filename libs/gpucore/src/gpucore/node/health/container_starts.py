"""Evidence about GPUs in the container statuses that kubelet writes.

Container runtimes put text of the pod into their messages: the command, paths, volumes, and the
environment that the NVIDIA hook reads. So only the part before the first quotation mark counts,
only the first sentence of the hook, and a GPU that it names must be the one that the plugin gave.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Final

from gpucore.wire.pod.container_statuses import ReportedState, container_statuses

_DOCKER: Final = re.compile(
    r'(?:Error: )?failed to start container "[a-z0-9-]+": Error response from daemon: '
)
_HOOK: Final = re.compile(r"nvidia-container-cli(?:\.real)?: ")
_NO_DRIVER: Final = re.compile(r"(?:initialization|detection) error: ")
_NO_DEVICE: Final = re.compile(r"device error: (?P<uuid>[A-Za-z0-9-]+): unknown device")
_NO_CDI_DEVICE: Final = re.compile(
    r"unresolvable CDI devices [a-z0-9./-]+=(?P<uuid>[A-Za-z0-9-]+)(?![A-Za-z0-9=-])"
)
_NO_DEVICE_FILE: Final = re.compile(r'[^"`]*adding custom device "/dev/nvidia[0-9]+":')
# Reasons whose message is the container runtime's; other messages are the program's own text.
_FAILURES: Final = frozenset(
    {"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)


def gpu_failed(message: str, gpus: Collection[str]) -> bool:
    """Whether the runtime reports that it could not reach the driver or one of ``gpus`` (UUIDs)."""
    message = _DOCKER.sub("", message, count=1)
    if _NO_DEVICE_FILE.match(message):
        return True
    prefix = re.split(r'["`]', message, maxsplit=1)[0]
    hook = _HOOK.search(prefix)
    if hook is not None:
        named = _NO_DEVICE.match(prefix, hook.end())
        return bool(_NO_DRIVER.match(prefix, hook.end()) or (named and named["uuid"] in gpus))
    named = _NO_CDI_DEVICE.search(prefix)
    return named is not None and named["uuid"] in gpus


class Start(StrEnum):
    """The evidence of a pod's start about its GPUs.

    FAILED: the container runtime could not reach the GPU. RUNS: a container runs on it. UNDECIDED:
    neither; a fault of the program, the image or a volume is no evidence about the GPU.
    """

    UNDECIDED = "undecided"
    FAILED = "failed"
    RUNS = "runs"


def start_of(line: bytes, gpus: Collection[str]) -> Start:
    """The evidence of the pod in one line of a watch about ``gpus``, the UUIDs it holds."""
    states = [
        state
        for container in container_statuses(line).all
        for state in (container.state, container.last_state)
        if state is not None
    ]
    if any(_is_evidence(state, gpus) for state in states):
        return Start.FAILED
    return Start.RUNS if any(state.running for state in states) else Start.UNDECIDED


def _is_evidence(state: ReportedState, gpus: Collection[str]) -> bool:
    reported = state.waiting or state.terminated
    return (
        reported is not None and reported.reason in _FAILURES and gpu_failed(reported.message, gpus)
    )
