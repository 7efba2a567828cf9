"""The answer of ``gpushare defrag`` for pods that wait: a table, a sentence, a document."""

import msgspec

from gpucore.defrag.planning import Eviction, EvictionPlan
from gpucore.explain.sentences import placement_sentence
from gpucore.units import MemoryUnit, counted
from gpucore.wire.documents import API_VERSION
from gpuinspect.defrag.run import RunReport
from gpuinspect.terminal.tables import align


class EvictionDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod to evict; units by index of the GPU."""

    namespace: str
    name: str
    from_node: str
    from_gpus: dict[str, int]
    to_node: str
    to_gpus: dict[str, int]
    evicted: bool


class WaitingDoc(msgspec.Struct, frozen=True, rename="camel"):
    """The pod for which pods are evicted, and where it fits then."""

    namespace: str
    name: str
    node: str
    gpus: list[int]


class EvictionPlanDoc(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare defrag -o json`` without a goal."""

    api_version: str
    kind: str
    applied: bool
    conclusion: str
    stopped: str
    pod: WaitingDoc | None
    evictions: list[EvictionDoc]


def document(report: RunReport) -> EvictionPlanDoc:
    """The answer for programs."""
    plan, evicted = report.found.plan, {pod.uid for pod in report.evicted}
    return EvictionPlanDoc(
        API_VERSION,
        "EvictionPlan",
        report.applied,
        conclusion(report),
        report.stopped,
        _waiting(plan) if plan else None,
        [_doc(each, done=each.pod.uid in evicted) for each in plan.evictions] if plan else [],
    )


def _waiting(plan: EvictionPlan) -> WaitingDoc:
    place = plan.placement
    gpus = sorted({*place.mem, *place.core, *place.group})
    return WaitingDoc(plan.waiting.namespace, plan.waiting.name, place.node, list(gpus))


def _doc(eviction: Eviction, *, done: bool) -> EvictionDoc:
    origin, to = eviction.origin, eviction.to
    return EvictionDoc(
        namespace=eviction.pod.namespace,
        name=eviction.pod.name,
        from_node=origin.node,
        from_gpus={str(i): units for i, units in origin.mem.items()},
        to_node=to.node,
        to_gpus={str(i): units for i, units in to.mem.items()},
        evicted=done,
    )


def table(report: RunReport, unit: MemoryUnit, *, headers: bool = True) -> str:
    """A line an eviction, then what they are for."""
    plan = report.found.plan
    rows = "".join(_row(each, unit) for each in plan.evictions) if plan else ""
    if not headers:
        return align(rows)
    head = "POD\tFROM\tTO\n" if rows else ""
    return align(head + rows) + f"{conclusion(report)}\n"


def _row(eviction: Eviction, unit: MemoryUnit) -> str:
    origin, to = (placement_sentence(at, unit) for at in (eviction.origin, eviction.to))
    return f"{eviction.pod}\t{origin}\t{to}\n"


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
