"""What a pod does to its neighbour: it takes all memory, it crashes, it is killed."""

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from gpuprobe.checks import answers as reading
from gpuprobe.checks.memory import STEP_MIB, exhausting
from gpuprobe.checks.rates import begun, rate
from gpuprobe.checks.verdicts import Answer, Figures, Proof, Step, judged, skipped

GREEDY: Final = "greedy"
FAULT: Final = "fault"
KILLED: Final = "killed"
PHASES: Final = (GREEDY, FAULT, KILLED)
LEAST_SPEED: Final = 0.6
"""Part of its speed that a neighbour keeps while the other only holds memory."""
STAY_SECONDS: Final = 3.0
BLOCKS: Final = 8
KERNEL_MS: Final = 1.0
"""Long enough that the pauses of a busy host are no part of the rate."""
HELD_MIB: Final = 64


def watching(seconds: float) -> list[Step]:
    """The neighbour: it works for this long and checks its memory."""
    watch = {"do": "watch", "seconds": seconds, "blocks": BLOCKS}
    return [watch | {"milliseconds": KERNEL_MS, "mib": HELD_MIB}]


def offending(gpu_mib: int, *, spare_mib: int = 0) -> list[Step]:
    """The offender, each time as a process of its own.

    Args:
        gpu_mib: what it tries to take at most.
        spare_mib: what it leaves free of the GPU.
    """
    exhaust = exhausting(STEP_MIB, gpu_mib, spare_mib)
    burn = {"do": "compute", "blocks": 1, "rounds": 1, "launches": 1, "seconds": 10.0}
    stay = {"do": "stay", "seconds": STAY_SECONDS}
    return [
        {"do": "child", "name": GREEDY, "steps": [exhaust]},
        stay,
        {"do": "leave", "name": GREEDY},
        {"do": "child", "name": FAULT, "steps": [{"do": "crash"}]},
        {"do": "leave", "name": FAULT},
        stay,
        {"do": "child", "name": KILLED, "steps": [], "kill": json.dumps(burn)},
        stay,
    ]


def _windows(offender: Sequence[Answer]) -> dict[str, tuple[float, float]]:
    """Unix times of the phases: from the begin of a process to the end of what follows it."""
    found = {}
    for phase in PHASES:
        (at,) = [
            n
            for n, each in enumerate(offender)
            if each.get("name") == phase and "ok" in each and each["do"] == "child"
        ] or [-1]
        if at < 0:
            raise reading.MissingAnswerError(f"the offender ended before the phase {phase}")
        stay = next((each for each in offender[at:] if each["do"] == "stay"), offender[at])
        found[phase] = (offender[at]["to" if phase == GREEDY else "from"], stay["to"])
    return found


def figures(neighbour: Sequence[Answer], offender: Sequence[Answer]) -> Figures:
    """Speed of the neighbour before and in each phase, and what became of both.

    Raises:
        MissingAnswerError: one of them did not get to its end, or the offender could not open the
            GPU or take memory of it.
    """
    windows, reports = _windows(offender), begun(neighbour, "the neighbour")
    found: dict[str, Any] = {"before_per_s": rate(reports, -math.inf, offender[0]["from"])}
    for phase, (start, end) in windows.items():
        found[f"{phase}_per_s"] = rate(reports, start, end)
    found["neighbour"] = next((reading.outcome(r) for r in reports if "error" in r), "fine")
    found["intact"] = all(each["ok"]["intact"] for each in reports if "ok" in each)
    found["greedy_mib"] = reading.step(reading.child(offender, GREEDY), 1)["held_mib"]
    found["fault"] = reading.outcome(_begun(reading.child(offender, FAULT))[-1])
    return found


def _begun(child: Sequence[Answer]) -> Sequence[Answer]:
    """A child that opened the GPU."""
    reading.step(child, 0)
    return child


def proof(found: Figures, mode: str) -> Proof:
    """The row ``neighbour``."""
    before, slowest = found["before_per_s"], found["greedy_per_s"]
    kept = slowest / before if before else 0.0
    figures_with = {**found, "kept_percent": round(100 * kept)}
    faults = []
    if found["neighbour"] != "fine":
        faults.append(f"the neighbour's work ended with {found['neighbour']}")
    if not found["intact"]:
        faults.append("memory of the neighbour was changed")
    if not found["greedy_mib"]:
        faults.append("the other took no memory, which shows nothing")
    if kept < LEAST_SPEED:
        faults.append(f"the neighbour kept {kept:.0%} of its speed")
    spreads = "mps" in mode and found["neighbour"] != "fine" and len(faults) == 1
    took = f"the other took {found['greedy_mib']} MiB, crashed with {found['fault']}, was killed"
    return judged(
        "neighbour",
        holds=not faults,
        known=spreads,
        expected=f"no error, memory intact, at least {LEAST_SPEED:.0%} of its speed",
        seen="; ".join(faults) or f"{kept:.0%} of its speed and intact, while {took}",
        next_step=_next(found, spreads=spreads, slow=kept < LEAST_SPEED),
        figures=figures_with,
    )


def _next(found: Figures, *, spreads: bool, slow: bool) -> str:
    if not found["greedy_mib"]:
        return "look for other users of the GPU, and for memory that the driver reserves"
    if spreads:
        return "with MPS a fault reaches all clients of a GPU: isolation mode driver separates them"
    if slow:
        return "look for other work on the GPU and its clocks (nvidia-smi); MPS limits compute"
    return "look for XID errors in the kernel log of the node, and for the GPU in gpushare doctor"


def health_proof(found: Figures, *, healthy: bool) -> Proof:
    """The row ``health``, after the fault of :data:`FAULT`."""
    if found["fault"] == "fine":
        return skipped("health", "the access to memory of nobody was not refused")
    return judged(
        "health",
        holds=healthy,
        expected="the GPU is healthy in the node's inventory after an illegal memory access",
        seen=f"healthy: {'yes' if healthy else 'no'}, after {found['fault']}",
        next_step="compare the XID in the kernel log of the node with devicePlugin.ignoredXids",
        figures={"healthy": healthy},
    )
