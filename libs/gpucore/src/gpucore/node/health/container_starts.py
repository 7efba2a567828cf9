"""Evidence about GPUs in the container statuses that kubelet writes."""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from gpucore.node.health.hook_messages import gpu_failed
from gpucore.wire.pod.container_statuses import ReportedState, container_statuses


class Start(StrEnum):
    """The evidence of a pod's start about its GPUs.

    FAILED: the container runtime could not reach the GPU. RUNS: a container runs on it. UNDECIDED:
    neither; a fault of the program, the image or a volume is no evidence about the GPU.
    """

    UNDECIDED = "undecided"
    FAILED = "failed"
    RUNS = "runs"


# Reasons whose message is the container runtime's; other messages are the program's own text.
_FAILURES: Final = frozenset(
    {"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)


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
