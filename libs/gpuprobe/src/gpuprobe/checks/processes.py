"""The limit of memory for a whole pod: a fork, a second program, and one from outside."""

from collections.abc import Sequence
from typing import Final

from gpuprobe.checks import answers as reading
from gpuprobe.checks.answers import outcome, value
from gpuprobe.checks.memory import (
    ISOLATE,
    LIMITED,
    MARGIN_MIB,
    STEP_MIB,
    exhausting,
    free_figure,
    full_gpu,
)
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged, skipped
from gpuprobe.names import OUT_OF_MEMORY

FIRST: Final = "fork"
SECOND: Final = "second program"


def needed_mib(allocated_mib: int) -> int:
    """What the three processes take where no limit holds, with a CUDA context each."""
    return allocated_mib // 2 + 2 * allocated_mib + 3 * MARGIN_MIB


def most_allocated_mib(free_mib: int) -> int:
    """The largest share whose processes stay within what is free; 0 or less for none."""
    return (free_mib - 3 * MARGIN_MIB) * 2 // 5


def steps(allocated_mib: int, *, spare_mib: int = 0) -> list[Step]:
    """A forked process takes half of the share, and the second tries to take all of it."""
    half = _exhausting(allocated_mib, allocated_mib // 2, spare_mib)
    all_of_it = _exhausting(allocated_mib, allocated_mib, spare_mib)
    return [
        {"do": "child", "name": FIRST, "how": "fork", "steps": half},
        {"do": "child", "name": SECOND, "how": "exec", "steps": all_of_it},
        {"do": "outside"},
    ]


def outside_steps(allocated_mib: int, *, spare_mib: int = 0) -> list[Step]:
    """What a process that enters the running container does."""
    return _exhausting(allocated_mib, allocated_mib, spare_mib)


def _exhausting(allocated_mib: int, most_mib: int, spare_mib: int) -> list[Step]:
    size = min(STEP_MIB, max(allocated_mib // 8, 2))
    return [exhausting(size, most_mib, spare_mib)]


def figures(allocated_mib: int, answers: Sequence[Answer]) -> Figures:
    """MiB that each process reached while the others held theirs.

    Raises:
        MissingAnswerError: a process did not run, or failed for another reason than the limit.
    """
    fork = reading.step(reading.child(answers, FIRST), 1)
    second = reading.child(answers, SECOND)
    outside = reading.first(answers, "outside")["answers"]
    reached = {
        "fork_mib": int(fork["held_mib"]),
        "second_mib": _reached(second),
        "outside_mib": _reached(outside),
    }
    free = free_figure(answer.get("ok", {}) for answer in (*second, *outside))
    return {
        "allocated_mib": allocated_mib,
        **reached,
        "sum_mib": sum(reached.values()),
        "refused": _refused(second) or _refused(outside),
        **free,
    }


def _refused(answers: Sequence[Answer]) -> bool:
    """Memory ran out for a process, which did not stop by itself."""
    answer = answers[-1]
    return bool(outcome(answer) == OUT_OF_MEMORY or value(answer)["refusal"])


def _reached(answers: Sequence[Answer]) -> int:
    """A process that has no memory for its context reached nothing."""
    answer = answers[-1]
    return 0 if outcome(answer) == OUT_OF_MEMORY else int(value(answer)["held_mib"])


def proof(found: Figures, mode: str) -> Proof:
    """The row ``processes``."""
    allocated, together = found["allocated_mib"], found["sum_mib"]
    per_process, holds = mode == "mps", together <= allocated and found["fork_mib"] > 0
    if holds and (why := full_gpu(found) or _left_alone(found)):
        return skipped("processes", why)
    expected = f"at most {allocated} MiB in all processes of the pod together"
    if per_process:
        expected += "; MPS limits each process by itself"
    each = f"fork {found['fork_mib']}, second program {found['second_mib']}"
    return judged(
        "processes",
        holds=holds,
        known=found["fork_mib"] > 0 and (per_process or mode not in LIMITED),
        expected=expected,
        seen=f"{together} MiB: {each}, exec from outside {found['outside_mib']}",
        next_step=_next(mode),
        figures=found,
    )


def _left_alone(found: Figures) -> str:
    """Why processes that were refused nothing show no limit; empty where one was refused."""
    if found["refused"]:
        return ""
    return f"not measurable: the processes left the last {MARGIN_MIB} MiB of the GPU to others"


def _next(mode: str) -> str:
    if mode == "none":
        return ISOLATE
    if mode == "mps":
        return (
            "isolation by the driver (r615 or later) limits the pod: gpushare/isolation=driver+mps"
        )
    return "read the events GpuLimitNotInForce of the pod: its limit is not on the pod's cgroup"
