"""Evidence about GPUs in the container statuses that kubelet writes.

Decoded apart from the pod itself: only the node's plugin reads them, and only of its own pods.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.node.health.hook_messages import gpu_failed


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


class _Reason(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    waiting: _Reason | None = None
    running: _Reason | None = None
    terminated: _Reason | None = None


class _Container(msgspec.Struct, rename="camel"):
    state: _State | None = None
    last_state: _State | None = None


class _Status(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct):
    status: _Status | None = None


class _Line(msgspec.Struct):
    object: _Pod


_DECODER: Final = msgspec.json.Decoder(_Line)


def start_of(line: bytes, gpus: Collection[str]) -> Start:
    """The evidence of the pod in one line of a watch about ``gpus``, the UUIDs it holds."""
    try:
        status = _DECODER.decode(line).object.status
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Start.UNDECIDED
    if status is None:
        return Start.UNDECIDED
    states = [
        state
        for container in (
            *(status.init_container_statuses or ()),
            *(status.container_statuses or ()),
        )
        for state in (container.state, container.last_state)
        if state is not None
    ]
    if any(_is_evidence(state, gpus) for state in states):
        return Start.FAILED
    return Start.RUNS if any(state.running for state in states) else Start.UNDECIDED


def _is_evidence(state: _State, gpus: Collection[str]) -> bool:
    reported = state.waiting or state.terminated
    return (
        reported is not None and reported.reason in _FAILURES and gpu_failed(reported.message, gpus)
    )
