"""The documents of ``gpushare defrag``: of moves, with a goal, and of evictions, without one."""

import msgspec

from gpucore.defrag.planning import Eviction, EvictionPlan
from gpucore.model import Placement
from gpucore.simulate.defrag import MovePlan
from gpucore.units import GpuIndex
from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.defrag.report import conclusion
from gpuinspect.defrag.run import RunReport


class MoveDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod to move; units by index of the GPU, 0 where it is exclusive or has compute alone."""

    namespace: str
    name: str
    from_node: str
    from_gpus: dict[str, int]
    to_node: str
    to_gpus: dict[str, int]


class DefragPlan(Document, frozen=True):
    """The answer of ``gpushare defrag -o json``."""

    node: str
    gpus: list[int]
    conclusion: str
    moves: list[MoveDoc]


class EvictionDoc(MoveDoc, frozen=True):
    """One pod to evict; units as of a move."""

    evicted: bool


class WaitingDoc(msgspec.Struct, frozen=True, rename="camel"):
    """The pod for which pods are evicted, and where it fits then."""

    namespace: str
    name: str
    node: str
    gpus: list[int]


class EvictionPlanDoc(Document, frozen=True):
    """The answer of ``gpushare defrag -o json`` without a goal."""

    applied: bool
    conclusion: str
    stopped: str
    pod: WaitingDoc | None
    evictions: list[EvictionDoc]


def defrag_plan(plan: MovePlan, result: str) -> DefragPlan:
    """The document of a plan, with what it frees as a sentence."""
    moves = [
        MoveDoc(
            namespace=move.allocation.namespace,
            name=move.allocation.name,
            from_node=move.allocation.placement.node,
            from_gpus=_gpus(move.allocation.placement),
            to_node=move.to.node,
            to_gpus=_gpus(move.to),
        )
        for move in plan.moves
    ]
    return DefragPlan(API_VERSION, "DefragPlan", plan.node, list(plan.gpus), result, moves)


def eviction_plan(report: RunReport) -> EvictionPlanDoc:
    """The answer for programs."""
    plan, evicted = report.found.plan, {pod.uid for pod in report.evicted}
    return EvictionPlanDoc(
        API_VERSION,
        "EvictionPlan",
        report.applied,
        conclusion(report),
        report.stopped,
        _waiting(plan) if plan else None,
        [_eviction(each, done=each.pod.uid in evicted) for each in plan.evictions] if plan else [],
    )


def _waiting(plan: EvictionPlan) -> WaitingDoc:
    place = plan.placement
    return WaitingDoc(plan.waiting.namespace, plan.waiting.name, place.node, [*_indexes(place)])


def _indexes(place: Placement) -> list[GpuIndex]:
    return sorted({*place.mem, *place.core, *place.group})


def _gpus(place: Placement) -> dict[str, int]:
    return {str(index): place.mem.get(index, 0) for index in _indexes(place)}


def _eviction(eviction: Eviction, *, done: bool) -> EvictionDoc:
    origin, to = eviction.origin, eviction.to
    return EvictionDoc(
        namespace=eviction.pod.namespace,
        name=eviction.pod.name,
        from_node=origin.node,
        from_gpus=_gpus(origin),
        to_node=to.node,
        to_gpus=_gpus(to),
        evicted=done,
    )
