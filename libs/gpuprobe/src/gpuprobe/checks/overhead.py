"""What a share costs: the same work in a pod with a share, and in one that uses the GPU without.

The pod with the share holds it, idle, while the other works: what that one uses is accounted for.
"""

from collections.abc import Sequence
from typing import Final

from gpuprobe.checks import compute
from gpuprobe.checks.answers import MissingAnswerError, step, value
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged

MOST_PERCENT: Final = 10
SECONDS: Final = 1.0
BLOCKS: Final = 8
KERNEL_MS: Final = 0.5
"""Short kernels: what a launch costs shows in them."""
LAUNCHES: Final = 40


def calibrating(multiprocessors: int) -> list[Step]:
    """Settle the sizes of both kernels: they fill the GPU, or a part of it for a short time."""
    small = {"do": "calibrate", "blocks": BLOCKS, "milliseconds": KERNEL_MS}
    return [compute.calibrating(multiprocessors), small]


def working(multiprocessors: int, calibrated: Sequence[Answer]) -> list[Step]:
    """The work, from the answers to :func:`calibrating`.

    Raises:
        MissingAnswerError: one of them was refused or is not there.
    """
    if len(calibrated) < 2:
        raise MissingAnswerError("the container ended before its kernels were calibrated")
    full, small = (int(value(answer)["rounds"]) for answer in calibrated[:2])
    launch = {"do": "compute", "blocks": BLOCKS, "rounds": small, "launches": LAUNCHES}
    return [compute.burning(multiprocessors, full, SECONDS), launch | {"seconds": SECONDS}]


def figures(share: Sequence[Answer], bare: Sequence[Answer]) -> Figures:
    """Milliseconds of both kinds of work with and without a share, and what the share costs.

    The quickest repetition counts: a busy host slows some of them, and makes none faster.

    Args:
        share: the answers to :func:`working` in the pod with a share.
        bare: those in the pod without.

    Raises:
        MissingAnswerError: one was refused or is not there.
    """
    found: dict[str, float] = {}
    costs = []
    for at, name in enumerate(("full", "small")):
        with_share, without = (_quickest(each[at : at + 1]) for each in (share, bare))
        found |= {f"{name}_share_ms": with_share, f"{name}_bare_ms": without}
        costs.append(100 * (with_share / without - 1))
    return found | {"cost_percent": max(costs)}


def refusal(bare: Sequence[Answer]) -> str:
    """Why the pod without a share could not do all of the work; empty where it could."""
    try:
        for at in range(2):
            step(bare, at)
    except MissingAnswerError as error:
        return str(error)
    return ""


def _quickest(answers: Sequence[Answer]) -> float:
    if not answers:
        raise MissingAnswerError("the container ended before its work")
    return float(min(value(answers[0])["milliseconds"]))


def proof(found: Figures) -> Proof:
    """The row ``overhead``."""
    cost = found["cost_percent"]
    return judged(
        "overhead",
        holds=cost <= MOST_PERCENT,
        expected=f"at most {MOST_PERCENT} % slower than a pod that uses the GPU without a share",
        seen=f"{max(cost, 0):.1f} % slower" if cost > 0 else "as fast",
        next_step="look for other work on the GPU, and compare isolation modes: MPS adds a daemon",
        figures=found,
    )
