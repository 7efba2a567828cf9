"""A program that ran out of GPU memory is recognised by its last words, and by nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.wire.pod.container_statuses import ContainerEvent, memory_failures

WORDS = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
AT = "2026-01-01T00:00:10Z"
SECONDS = 1_767_225_610.0


def event(where: str = "lastState", **changed: Any) -> bytes:
    """A line of a watch with a container that ended."""
    end = {"exitCode": 1, "reason": "Error", "message": WORDS, "finishedAt": AT, **changed}
    box = {"name": "main", "state": {"running": {}}, where: {"terminated": end}}
    return json.dumps({"object": {"status": {"containerStatuses": [box]}}}).encode()


@pytest.mark.parametrize("where", ["state", "lastState"])
def test_a_container_that_ended_with_such_words_ran_out(where: str) -> None:
    """Whether it was started again or not."""
    assert memory_failures(event(where)) == [ContainerEvent(SECONDS, "main")]


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA error: out of memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying",
        "cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY",
        "ggml_cuda: cudaMalloc failed: out of memory",
    ],
)
def test_the_words_of_several_libraries_are_known(message: str) -> None:
    """In any case."""
    assert memory_failures(event(message=message))


@pytest.mark.parametrize(
    "changed",
    [
        {"reason": "OOMKilled"},
        {"exitCode": 0},
        {"message": "Killed: out of memory"},
        {"message": ""},
        {"finishedAt": None},
        {"finishedAt": "yesterday"},
        {"finishedAt": "2026-01-01T00:00:10"},
    ],
)
def test_host_memory_and_other_ends_are_no_failure(changed: dict[str, Any]) -> None:
    """The kernel kills a program for host memory with the reason OOMKilled."""
    assert memory_failures(event(**changed)) == []


@pytest.mark.slow
@given(st.binary(max_size=100) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_other_bytes_have_no_failure(raw: bytes | str) -> None:
    """Nor do they raise."""
    assert memory_failures(raw if isinstance(raw, bytes) else raw.encode()) == []
