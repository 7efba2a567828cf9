"""Containers that ended because GPU memory ran out, by the last words of their programs.

The status of a container that ended has these words where its pod sets
``terminationMessagePolicy: FallbackToLogsOnError``, or where the program writes a termination
message. The reason ``OOMKilled`` is about host memory and does not count.
"""

from typing import Final

import msgspec

from gpucore.wire.pod.container_statuses import StateDetails, container_statuses
from gpucore.wire.times import unix_seconds

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


def memory_failures(line: bytes) -> list[MemoryFailure]:
    """The failures in a line of a watch, oldest first; none for other bytes."""
    ends = (
        MemoryFailure(unix_seconds(state.terminated.finished_at), box.name)
        for box in container_statuses(line).containers
        for state in (box.last_state, box.state)
        if state and state.terminated and _ran_out(state.terminated)
    )
    return sorted(end for end in ends if end.at)


def _ran_out(end: StateDetails) -> bool:
    if not end.exit_code or end.reason == HOST_MEMORY:
        return False
    words = end.message.lower()
    return any(each in words for each in WORDS)
