"""The answer of ``gpushare defrag`` for pods that wait: a table and a sentence."""

from collections.abc import Mapping

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.defrag.planning import Eviction
from gpucore.explain.sentences import placement_sentence
from gpucore.units import NodeName, PodUid, counted
from gpuinspect.defrag.run import RunReport
from gpuinspect.terminal.output import table as aligned


def table(report: RunReport, nodes: Mapping[NodeName, NodeInfo], *, headers: bool = True) -> str:
    """A line an eviction, then what they are for."""
    plan = report.found.plan
    rows = [_row(report, each, nodes) for each in plan.evictions] if plan else []
    heads = ("POD", "FROM", "TO", *(["EVICTED"] if report.applied else []))
    shown = aligned(heads, rows, headers=headers and bool(rows))
    return f"{shown}{conclusion(report)}\n" if headers else shown


def _row(
    report: RunReport, eviction: Eviction, nodes: Mapping[NodeName, NodeInfo]
) -> tuple[str, ...]:
    places = (eviction.origin, eviction.to)
    origin, to = (placement_sentence(at, unit_of(nodes[at.node])) for at in places)
    done = [_evicted(report, eviction.pod.uid)] if report.applied else []
    return (str(eviction.pod), origin, to, *done)


def _evicted(report: RunReport, uid: PodUid) -> str:
    if report.unknown is not None and uid == report.unknown.uid:
        return "unknown"
    return "yes" if any(pod.uid == uid for pod in report.evicted) else "no"


def left(report: RunReport) -> str:
    """How to go on after a failure ended the run; empty where none did."""
    plan = report.found.plan
    if plan is None or report.failure is None:
        return ""
    done = {pod.uid for pod in report.evicted}
    pods = [str(each.pod) for each in plan.evictions if each.pod.uid not in done]
    return (
        f"{plan.waiting} may still need the eviction of {', '.join(pods)}: no run evicts for it"
        " again within an hour, so delete these pods, or wait"
    )


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
