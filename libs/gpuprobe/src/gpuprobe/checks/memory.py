"""The limit of memory: one process takes all that it gets, up to more than its share."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpuprobe.checks.answers import value
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged, skipped
from gpuprobe.names import OUT_OF_MEMORY

STEP_MIB: Final = 512
BEYOND: Final = 1.5
"""How far beyond its grant a process tries to go, as a multiple."""
CONTEXT_MIB: Final = 1536
"""More than a CUDA context takes of its own limit on any GPU we know of."""
MARGIN_MIB: Final = 768
"""Memory of the GPU that a process uses besides what it takes: its CUDA context and its kernels.

That is a few hundred MiB; nothing else counts it where no limit holds.
"""
FULL_MIB: Final = 512
"""Less is free of a GPU whose own end refused memory: a limit leaves what no pod holds."""
LIMITED: Final = frozenset({"mps", "driver", "driver+mps"})
"""Isolation modes that promise a limit of memory."""
ISOLATE: Final = (
    "enable isolation: label the node gpushare/isolation=driver or =mps; where it has that label,"
    " read its events GpuIsolation and the alert GpushareLimitNotInForce"
)
"""The next step in mode ``none``, which a GPU also has while the mode of its node cannot hold."""


def spare_mib(mode: str) -> int:
    """What a process leaves free of the GPU: only a limit that holds is reached without harm."""
    return 0 if mode in LIMITED else MARGIN_MIB


def steps(allocated_mib: int, *, most_mib: int = 0, spare_mib: int = 0) -> list[Step]:
    """Take all, check it, give it back, and take a little again.

    Args:
        allocated_mib: the share.
        most_mib: what it tries to take at most; 0 for :data:`BEYOND`.
        spare_mib: what it leaves free of the GPU.
    """
    most = most_mib or int(allocated_mib * BEYOND)
    return [
        exhausting(min(STEP_MIB, max(allocated_mib // 4, 2)), most, spare_mib),
        {"do": "verify"},
        {"do": "release"},
        {"do": "fill", "mib": 2},
    ]


def exhausting(step_mib: int, most_mib: int, spare_mib: int = 0) -> Step:
    """Take memory in steps, and leave some of the GPU free where that is wanted."""
    step = {"do": "exhaust", "step_mib": step_mib, "most_mib": most_mib}
    return step | ({"spare_mib": spare_mib} if spare_mib else {})


def filled(allocated_mib: int, described: Answer, answers: Sequence[Answer]) -> Figures:
    """The measured values of one process.

    Args:
        allocated_mib: its share.
        described: what the driver reported to it when it began.
        answers: to :func:`steps`.

    Raises:
        MissingAnswerError: a step was refused.
    """
    taken, checked, released, again = (value(answer) for answer in answers)
    return {
        "allocated_mib": allocated_mib,
        "reached_mib": int(taken["held_mib"]),
        "reported_total_mib": int(described["reported_total_bytes"]) // (1024 * 1024),
        "refusal": taken["refusal"],
        "intact": bool(checked["intact"]),
        "released": released["held_mib"] == 0 and again["held_mib"] == 2,
        **free_figure([taken]),
    }


def free_figure(refused: Iterable[Answer]) -> Figures:
    """What was free of the GPU at the refusals of memory, the least of it; nothing if unknown."""
    found = [answer["gpu_free_mib"] for answer in refused if "gpu_free_mib" in answer]
    return {"gpu_free_mib": min(found)} if found else {}


def full_gpu(figures: Figures) -> str:
    """Why a refusal shows no limit: the GPU itself had no more; empty where it had, or unknown."""
    free = figures.get("gpu_free_mib", FULL_MIB)
    if free >= FULL_MIB:
        return ""
    return f"not measurable: the GPU was full ({free} MiB free) before memory was refused"


def holds(figures: Figures) -> bool:
    """Refused for want of memory at the grant, and not far below it."""
    allocated, reached = figures["allocated_mib"], figures["reached_mib"]
    least = max(allocated - CONTEXT_MIB, allocated // 4)
    return bool(figures["refusal"] == OUT_OF_MEMORY and least <= reached <= allocated)


def proof(figures: Figures, mode: str) -> Proof:
    """The row ``memory``."""
    allocated, reached = figures["allocated_mib"], figures["reached_mib"]
    whole = bool(figures["intact"] and figures["released"])
    if holds(figures) and (why := full_gpu(figures)):
        return skipped("memory", why)
    by = {"mps": "MPS", "none": "nobody"}.get(mode, "the driver")
    if mode in LIMITED:
        expected = f"out of memory at {allocated} MiB, the CUDA context included, by {by}"
    else:
        expected = f"a process may take more than its {allocated} MiB: isolation mode {mode}"
    if figures["refusal"]:
        seen = f"{figures['refusal']} after {reached} MiB"
    elif reached > allocated:
        seen = f"no refusal: it holds {reached} MiB, {reached - allocated} MiB beyond its share"
    else:
        seen = f"no refusal: it holds {reached} MiB, and leaves the rest of the GPU to others"
    if not whole:
        seen += "; what it held was not intact, or could not be released"
    return judged(
        "memory",
        holds=holds(figures) and whole,
        known=mode not in LIMITED and whole and reached >= allocated // 4,
        expected=expected,
        seen=seen,
        next_step=_next(mode, too_little=reached < allocated // 4),
        figures=figures,
    )


def _next(mode: str, *, too_little: bool) -> str:
    if too_little:
        return "look for other users of the GPU, and for memory that the driver reserves"
    if mode == "none":
        return ISOLATE
    if mode == "mps":
        return "check that the MPS daemon of the GPU runs: gpushare doctor, alert GpushareMpsDown"
    return "read the events GpuLimitNotInForce of the pod and the node (docs/isolation.md)"
