"""The verdict on one property of a GPU, with what it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gpuprobe.names import LIBRARY

Figures = Mapping[str, Any]
Step = dict[str, Any]
Answer = Mapping[str, Any]


class ProofVerdict(StrEnum):
    """What the measurement shows."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    KNOWN = "known"
    """It does not hold, and the documentation of the isolation mode states that."""
    SKIP = "skip"
    """It was not measured; ``seen`` has the reason."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One row of the table.

    Attributes:
        row: name of the check, such as ``memory``.
        expected, seen: sentences without a full stop.
        next_step: what to do; empty unless the verdict is FAIL or KNOWN.
        figures: measured values by name, with the unit at the end of the name.
    """

    row: str
    verdict: ProofVerdict
    expected: str
    seen: str
    next_step: str = ""
    figures: Figures = field(default_factory=dict)


ROWS: Final[Mapping[str, str]] = {
    "share": "the share that was requested is the share that arrives",
    "accounting": "scheduler, kubelet and process agree about the share",
    "memory": "the memory limit holds for one process",
    "processes": "the memory limit holds for all processes of a pod: fork, second program, exec",
    "neighbour": "a neighbour keeps its memory and its speed",
    "health": "a fault of an application leaves the GPU healthy",
    "sharing": "two pods that work on one GPU at once each get their part of its speed",
    "burst": "a pod uses memory up to its limit above its share, and gives it back",
    "compute": "a share of compute limits compute",
    "overhead": "a share is as fast as the same work in a pod without one",
    "exclusive": "exclusive GPUs reach each other as their links promise",
    "start": "time from the creation of a pod with a share to its first instruction",
}
"""Every row in the order of the table, and the property that it proves."""
QUICK: Final = ("share", "accounting", "memory")
"""Rows that take seconds."""


def skipped(row: str, why: str) -> Proof:
    """A row that was not measured."""
    return Proof(row=row, verdict=ProofVerdict.SKIP, expected=ROWS[row], seen=why)


def judged(
    row: str,
    *,
    holds: bool,
    expected: str,
    seen: str,
    next_step: str,
    figures: Figures,
    known: bool = False,
) -> Proof:
    """A row by whether the property holds.

    Args:
        known: where it does not hold, that is documented.
    """
    worse = ProofVerdict.KNOWN if known else ProofVerdict.FAIL
    verdict = ProofVerdict.PASS if holds else worse
    return Proof(
        row=row,
        verdict=verdict,
        expected=expected,
        seen=seen,
        next_step="" if holds else next_step,
        figures=figures,
    )


_NO_DRIVER: Final = (
    "the container has no CUDA driver, which the NVIDIA Container Toolkit adds: make its runtime"
    " the default of the node, or name its RuntimeClass with --runtime-class"
)
_UNKNOWN: Final = "repeat with --keep, and read the events and the log of the pod"


def ended_early(row: str, why: str) -> Proof:
    """The containers of a row did not get as far as the measurement."""
    return Proof(
        row=row,
        verdict=ProofVerdict.FAIL,
        expected=ROWS[row],
        seen=why,
        next_step=_NO_DRIVER if LIBRARY in why else _UNKNOWN,
    )
