"""Recommended sizes of the shares of workloads."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from gpucore.accounting.node_info import NodeInfo, common_unit, unit_of
from gpucore.sizing.evidence import DAY, SizingRules
from gpucore.sizing.recommendation import Recommendation, recommend
from gpucore.sizing.usage_history import UsageHistory
from gpucore.units import GIB, MemoryUnit
from gpuinspect.errors import MissingObjectError


class RecommendScope(msgspec.Struct, frozen=True):
    """Which workloads are meant.

    Attributes:
        namespace: empty for all.
        kind, name: of one workload; empty for all, and an empty kind for those of every kind.
        days: those that were measured within these days of the newest sample.
        now: Unix seconds. A later sample is of a node whose clock is ahead: the days count back
            from here then.
    """

    namespace: str = ""
    kind: str = ""
    name: str = ""
    days: float = 7.0
    now: float = math.inf


def recommendations(
    histories: Sequence[UsageHistory], scope: RecommendScope, unit: MemoryUnit, rules: SizingRules
) -> tuple[Recommendation, ...]:
    """One for each container with a share, most freed memory first.

    Raises:
        MissingObjectError: the workload that is named was not measured.
    """
    found = tuple(recommend(each, unit, rules) for each in within(histories, scope))
    if scope.name and not found:
        where = f"namespace {scope.namespace}" if scope.namespace else "any namespace"
        raise MissingObjectError(
            f"no memory was measured of {scope.kind or 'workload'} {scope.name} in {where}:"
            " a pod of it must have run for some minutes; without a name, all workloads are listed"
        )
    return tuple(sorted(found, key=lambda each: (-each.freed, each.key)))


def within(histories: Sequence[UsageHistory], scope: RecommendScope) -> Iterable[UsageHistory]:
    """Those of the scope."""
    newest = min(max((each.last_seen for each in histories), default=0.0), scope.now)
    for each in histories:
        named = not scope.name or (
            each.key.name == scope.name and scope.kind in {"", each.key.kind.lower()}
        )
        recent = each.last_seen >= newest - scope.days * DAY
        if named and recent and scope.namespace in {"", each.key.namespace}:
            yield each


def unit_in(node_infos: Iterable[NodeInfo]) -> MemoryUnit:
    """The unit of all nodes; GiB where they differ, and where there are none."""
    return common_unit(node_infos) or GIB


def units_in(node_infos: Iterable[NodeInfo]) -> tuple[MemoryUnit, ...]:
    """The units of the nodes with GPUs, each once, the largest first."""
    found = {unit_of(info) for info in node_infos if info.devices}
    return tuple(sorted(found, key=lambda unit: -unit.mib))
