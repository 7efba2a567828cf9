"""Whether the containers of a pod could be started, from the statuses that kubelet writes.

Read apart from the pod itself: only a node looks at these, and only at its own pods.
"""

from enum import StrEnum
from typing import Final

import msgspec


class Start(StrEnum):
    """How far a pod got."""

    UNDECIDED = "undecided"
    FAILED = "failed"
    RUNS = "runs"


# Reasons that name the runtime (and its GPU hook), not the image or the program.
_FAILURES: Final = frozenset(
    {"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)


class _Reason(msgspec.Struct):
    reason: str = ""


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


def start_of(line: bytes) -> Start:
    """How far the pod in one line of a watch got; undecided where the line says nothing of it."""
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
    if any(_reason(state) in _FAILURES for state in states):
        return Start.FAILED
    return Start.RUNS if any(state.running for state in states) else Start.UNDECIDED


def _reason(state: _State) -> str:
    told = state.waiting or state.terminated
    return told.reason if told else ""
