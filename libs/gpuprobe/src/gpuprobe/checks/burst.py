"""A memory limit above the share: it is reached, nothing is beyond it, and memory is given back."""

from collections.abc import Sequence
from typing import Final

from gpuprobe.checks import answers as reading
from gpuprobe.checks.memory import (
    BEYOND,
    CONTEXT_MIB,
    STEP_MIB,
    exhausting,
    free_figure,
    full_gpu,
)
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged, skipped
from gpuprobe.names import OUT_OF_MEMORY

FIRST: Final = "first"
AGAIN: Final = "again"


def steps(limit_mib: int, *, most_mib: int) -> list[Step]:
    """Two processes one after the other: the second has what the first gave back.

    The first ends before the second begins: its CUDA context would count for the limit.

    Args:
        limit_mib: of the pod.
        most_mib: what a process tries to take at most.
    """
    size = min(STEP_MIB, max(limit_mib // 8, 2))
    exhaust = exhausting(size, min(int(limit_mib * BEYOND), most_mib))
    return [
        {"do": "child", "name": FIRST, "steps": [exhaust, {"do": "release"}]},
        {"do": "leave", "name": FIRST},
        {"do": "child", "name": AGAIN, "steps": [exhaust]},
    ]


def figures(share_mib: int, limit_mib: int, answers: Sequence[Answer]) -> Figures:
    """MiB that each process reached.

    Raises:
        MissingAnswerError: one did not run.
    """
    first = reading.step(reading.child(answers, FIRST), 1)
    again = reading.step(reading.child(answers, AGAIN), 1)
    return {
        "share_mib": share_mib,
        "limit_mib": limit_mib,
        "reached_mib": int(first["held_mib"]),
        "again_mib": int(again["held_mib"]),
        "refusal": first["refusal"],
        **free_figure((first, again)),
    }


def proof(found: Figures) -> Proof:
    """The row ``burst``: a process that stays within the share has shown no burst."""
    share, limit = found["share_mib"], found["limit_mib"]
    least = max(limit - CONTEXT_MIB, share + 1)
    reached, again = found["reached_mib"], found["again_mib"]
    ends = max(reached, again) <= limit and found["refusal"] == OUT_OF_MEMORY
    if ends and (why := full_gpu(found)):
        return skipped("burst", why)
    return judged(
        "burst",
        holds=ends and min(reached, again) >= least,
        expected=f"out of memory at {limit} MiB, not at the share of {share} MiB, and again after",
        seen=(
            f"{found['refusal'] or 'no refusal'} after {reached} MiB;"
            f" {again} MiB after that was given back"
        ),
        next_step="read the events GpuLimitNotInForce of the pod; see driverLimits in the values",
        figures=found,
    )
