"""Containers that ended because GPU memory ran out, by the last words of their programs.

The status of a container that ended has these words where its pod sets
``terminationMessagePolicy: FallbackToLogsOnError``, or where the program writes a termination
message. The reason ``OOMKilled`` is about host memory and does not count.
"""

from datetime import datetime
from typing import Final

import msgspec

HOST_MEMORY: Final = "OOMKilled"
WORDS: Final = (
    "cuda out of memory",
    "cuda error: out of memory",
    "cuda_error_out_of_memory",
    "cudaerrormemoryallocation",
    "cudamalloc failed: out of memory",
    "torch.outofmemoryerror",
    "resource_exhausted: out of memory",
)
"""In lower case: of PyTorch, the driver, the CUDA runtime, llama.cpp and XLA."""


class MemoryFailure(msgspec.Struct, frozen=True, order=True):
    """The end of a container that ran out of GPU memory.

    Attributes:
        at: Unix seconds.
        container: its name.
    """

    at: float
    container: str


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class _State(msgspec.Struct):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    state: _State | None = None
    last_state: _State | None = None


class _Status(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] | None = None


class _Pod(msgspec.Struct):
    status: _Status | None = None


class _Event(msgspec.Struct):
    object: _Pod


_EVENT: Final = msgspec.json.Decoder(_Event)


def memory_failures(line: bytes) -> list[MemoryFailure]:
    """The failures in a line of a watch, oldest first; none for other bytes."""
    try:
        status = _EVENT.decode(line).object.status
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []
    boxes = (status.container_statuses or ()) if status else ()
    ends = (
        MemoryFailure(_seconds(state.terminated.finished_at), box.name)
        for box in boxes
        for state in (box.last_state, box.state)
        if state and state.terminated and _ran_out(state.terminated)
    )
    return sorted(end for end in ends if end.at)


def _ran_out(end: _Terminated) -> bool:
    if not end.exit_code or end.reason == HOST_MEMORY:
        return False
    words = end.message.lower()
    return any(each in words for each in WORDS)


def _seconds(text: str | None) -> float:
    """Unix seconds; 0 where the text is no time with a zone."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return found.timestamp() if found.tzinfo else 0.0
