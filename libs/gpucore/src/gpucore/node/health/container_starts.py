"""Evidence about GPUs in the container statuses that kubelet writes.

Container runtimes put text of the pod into their messages, with and without quotation marks: the
command, paths, the name of an AppArmor profile, the environment that NVIDIA's programs read.
So an error counts only where the runtime itself wrote everything before it, only the first sentence
of the hook counts, and a GPU that it names must be the one that the plugin gave.
"""

import re
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final

from gpucore.wire.pod.container_statuses import (
    ReportedContainer,
    ReportedState,
    container_statuses,
)

_DOCKER: Final = re.compile(
    r'^(?:Error: )?failed to start container "[a-z0-9-]+": Error response from daemon: '
)
# runc's own words: where it writes text of the pod, a path or a quotation mark stands before that.
_HOOK: Final = re.compile(
    r"(?:failed to create (?:containerd task|task for container|shim task|shim): )*"
    r"OCI runtime create failed: [A-Za-z0-9_ .,:#]*, stderr: "
    r"(?:(?:Auto-detected mode as|Using requested mode) '[a-z-]+'\n)?"
    r"nvidia-container-cli(?:\.real)?: "
)
_NO_DRIVER: Final = re.compile(r"(?:initialization|detection) error: ")
_NO_DEVICE: Final = re.compile(r"device error: (?P<uuid>[A-Za-z0-9-]+): unknown device")
_NO_CDI_DEVICE: Final = re.compile(
    r"(?:failed to create containerd container: )?CDI device injection failed: "
    r"unresolvable CDI devices [a-z0-9./-]+=(?P<uuid>[A-Za-z0-9-]+)(?![A-Za-z0-9=-])"
)
_NO_DEVICE_FILE: Final = re.compile(
    r"(?:linux runtime spec devices: )?error gathering device information "
    r'while adding custom device "/dev/nvidia[0-9]+":'
)
# Reasons whose message is the container runtime's; other messages are the program's own text.
_STARTS: Final = frozenset({"RunContainerError", "StartError", "ContainerCannotRun"})
_FAILURES: Final = _STARTS | {"CreateContainerError"}


def gpu_failed(reason: str, message: str, gpus: Collection[str]) -> bool:
    """Whether the runtime reports that it could not reach the driver or one of ``gpus`` (UUIDs)."""
    message = _DOCKER.sub("", message, count=1)
    named = _NO_CDI_DEVICE.match(message)
    if named is not None:
        return named["uuid"] in gpus
    return reason in _STARTS and _start_failed(message, gpus)


def _start_failed(message: str, gpus: Collection[str]) -> bool:
    """As :func:`gpu_failed`, of what runtimes report at a start: device files and the hook."""
    hook = _HOOK.match(message)
    if hook is None:
        return _NO_DEVICE_FILE.match(message) is not None
    named = _NO_DEVICE.match(message, hook.end())
    return bool(_NO_DRIVER.match(message, hook.end()) or (named and named["uuid"] in gpus))


class Start(StrEnum):
    """The evidence of a pod's start about its GPUs.

    FAILED: the container runtime could not reach the GPU. RUNS: containers run, and none waits that
    may be the one with the GPU. UNDECIDED: neither; a fault of the program, the image or a volume
    is no evidence about the GPU.
    """

    UNDECIDED = "undecided"
    FAILED = "failed"
    RUNS = "runs"


def start_of(line: bytes, gpus: Collection[str]) -> Start:
    """The evidence of the pod in one line of a watch about ``gpus``, the UUIDs it holds."""
    states = [state for each in container_statuses(line).all for state in _states(each)]
    if any(_is_evidence(state, gpus) for state in states):
        return Start.FAILED
    waits = any(state.waiting for state in states)
    runs = any(state.running for state in states)
    return Start.RUNS if runs and not waits else Start.UNDECIDED


def _states(container: ReportedContainer) -> Iterator[ReportedState]:
    """The state now, and the last one of a container that has not started since."""
    state, last = container.state, container.last_state
    if state is not None:
        yield state
    if last is not None and not (state and (state.running or state.terminated)):
        yield last


def _is_evidence(state: ReportedState, gpus: Collection[str]) -> bool:
    reported = state.waiting or state.terminated
    return (
        reported is not None
        and reported.reason in _FAILURES
        and gpu_failed(reported.reason, reported.message, gpus)
    )
