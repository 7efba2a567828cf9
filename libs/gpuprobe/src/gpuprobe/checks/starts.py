"""The time that a pod with a share takes to its first instruction."""

import statistics
from collections.abc import Sequence
from typing import Final

from gpuprobe.checks.verdicts import Figures, Proof, judged

MOST_SECONDS: Final = 60.0
"""A start that takes longer is a fault and no matter of speed: the image is on the node."""


def figures(seconds: Sequence[float]) -> Figures:
    """Median and the 99th percentile of the starts."""
    times = sorted(seconds)
    return {
        "starts": len(times),
        "p50_s": round(statistics.median(times), 2),
        "p99_s": round(times[min(int(len(times) * 0.99), len(times) - 1)], 2),
    }


def proof(found: Figures) -> Proof:
    """The row ``start``."""
    return judged(
        "start",
        holds=found["p99_s"] <= MOST_SECONDS,
        expected=f"at most {MOST_SECONDS:g} s, the image being on the node",
        seen=f"p50 {found['p50_s']} s, p99 {found['p99_s']} s of {found['starts']}",
        next_step="read the events of slow pods: scheduling, sandbox, start turn",
        figures=found,
    )
