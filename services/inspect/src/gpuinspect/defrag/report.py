"""The answer of ``gpushare defrag`` for pods that wait: a table and a sentence."""

from gpucore.defrag.planning import Eviction
from gpucore.explain.sentences import placement_sentence
from gpucore.units import MemoryUnit, counted
from gpuinspect.defrag.run import RunReport
from gpuinspect.terminal.output import table as aligned


def table(report: RunReport, unit: MemoryUnit, *, headers: bool = True) -> str:
    """A line an eviction, then what they are for."""
    plan = report.found.plan
    rows = [_row(each, unit) for each in plan.evictions] if plan else []
    shown = aligned(("POD", "FROM", "TO"), rows, headers=headers and bool(rows))
    return f"{shown}{conclusion(report)}\n" if headers else shown


def _row(eviction: Eviction, unit: MemoryUnit) -> tuple[str, ...]:
    origin, to = (placement_sentence(at, unit) for at in (eviction.origin, eviction.to))
    return (str(eviction.pod), origin, to)


def conclusion(report: RunReport) -> str:
    """What was evicted, or would be, and for which pod."""
    plan = report.found.plan
    if plan is None:
        none = "no waiting pod would fit by it" if report.found.reasons else "no pod waits for GPUs"
        return f"nothing is evicted: {report.stopped or none}"
    fits = f"so that {plan.waiting} fits node {plan.node}"
    if not report.applied:
        return f"dry run: --apply evicts {counted(len(plan.evictions), 'pod')} {fits}"
    done = f"evicted {len(report.evicted)} of {counted(len(plan.evictions), 'pod')} {fits}"
    return f"{done}; stopped: {report.stopped}" if report.stopped else done
