"""Two pods that work on one GPU at once, as two model servers do: each keeps its part."""

import math
from collections.abc import Sequence
from typing import Final

from gpuprobe.checks.answers import first, outcome
from gpuprobe.checks.rates import begun, rate
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged

SECONDS: Final = 4.0
HELD_MIB: Final = 1024
"""Memory that each pod holds and checks, as a server holds its weights."""
BLOCKS: Final = 8
KERNEL_MS: Final = 1.0
LEAST_PART: Final = 0.3
"""Of the speed alone: a half by time slicing, and all of it where MPS runs both at once."""


def serving(seconds: float, *, rounds: int = 0) -> list[Step]:
    """The pod works for these seconds, and checks the memory that it holds.

    Args:
        rounds: size of the work of a pod that comes second, from :func:`rounds_of`; 0 settles it.
    """
    step = {"do": "watch", "seconds": seconds, "blocks": BLOCKS, "milliseconds": KERNEL_MS}
    return [step | {"mib": HELD_MIB} | ({"rounds": rounds} if rounds else {})]


def rounds_of(one: Sequence[Answer]) -> int:
    """Size of the work of a pod that began alone.

    Raises:
        MissingAnswerError: it did not begin.
    """
    return int(first(one, "watch")["rounds"])


def figures(one: Sequence[Answer], other: Sequence[Answer]) -> Figures:
    """Operations a second of the first pod alone, and of both while the second works too.

    Raises:
        MissingAnswerError: one of them did not begin to work.
    """
    ones, others = begun(one, "the first pod"), begun(other, "the second pod")
    start, end = others[0]["from"], others[-1]["to"]
    failed = [outcome(each) for each in (*ones, *others) if "error" in each]
    return {
        "alone_gflops": rate(ones, -math.inf, start, "operations") / 1e9,
        "first_gflops": rate(ones, start, end, "operations") / 1e9,
        "second_gflops": rate(others, start, end, "operations") / 1e9,
        "work": failed[0] if failed else "fine",
        "intact": all(each["ok"]["intact"] for each in (*ones, *others) if "ok" in each),
    }


def proof(found: Figures) -> Proof:
    """The row ``sharing``."""
    alone = found["alone_gflops"]
    parts = [found[f"{which}_gflops"] / alone if alone else 0.0 for which in ("first", "second")]
    faults = []
    if found["work"] != "fine":
        faults.append(f"the work of one ended with {found['work']}")
    if not found["intact"]:
        faults.append("memory of one was changed")
    reached = f"{parts[0]:.0%} and {parts[1]:.0%} of the speed alone"
    if min(parts) < LEAST_PART:
        faults.append(f"they reach {reached}")
    return judged(
        "sharing",
        holds=not faults,
        expected=f"no error, memory intact, each at least {LEAST_PART:.0%} of its speed alone",
        seen="; ".join(faults) or f"{reached}, both at once",
        next_step="look for other work on the GPU (nvidia-smi); MPS lets small kernels run at once",
        figures={**found, "together_percent": round(100 * sum(parts))},
    )
