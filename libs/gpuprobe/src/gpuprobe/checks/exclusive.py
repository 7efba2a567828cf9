"""Exclusive GPUs: the bandwidth between two of them fits the link in the node's inventory."""

from collections.abc import Sequence
from typing import Final

from gpuprobe.checks import answers as reading
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged

MIB: Final = 256
SECONDS: Final = 1.0
NVLINK_GB_PER_S: Final = 8.0
"""Least measured rate for each NVLink of a pair: the first generation has 20 GB/s each way."""
PCIE_GB_PER_S: Final = 1.5
"""Least measured rate without NVLink: four lanes of the third generation, or through the host."""


def steps() -> list[Step]:
    """Copies from the first GPU of the container to the second."""
    return [{"do": "environment"}, {"do": "peers", "mib": MIB, "seconds": SECONDS}]


def figures(nvlinks: int, answers: Sequence[Answer]) -> Figures:
    """GB/s, and whether the GPUs reach each other's memory directly.

    Raises:
        MissingAnswerError: the container did not report.
    """
    found = reading.first(answers, "peers")
    rate = found["bytes"] / found["seconds"] / 1e9
    return {"nvlinks": nvlinks, "gb_per_s": rate, "direct": found["direct"]}


def proof(found: Figures, *, link: str) -> Proof:
    """The row ``exclusive``; ``link`` is the connection as the inventory names it."""
    links = found["nvlinks"]
    least = max(links * NVLINK_GB_PER_S, PCIE_GB_PER_S)
    how = "directly" if found["direct"] else "through the host"
    return judged(
        "exclusive",
        holds=found["gb_per_s"] >= least and (found["direct"] or not links),
        expected=f"at least {least:g} GB/s over {link}",
        seen=f"{found['gb_per_s']:.1f} GB/s {how}",
        next_step="compare nvidia-smi topo -m with gpushare topology show; look for lost links",
        figures=found,
    )
