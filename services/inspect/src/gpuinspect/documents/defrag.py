"""The document of ``gpushare defrag --gpus`` and ``--units``."""

import msgspec

from gpucore.simulate.defrag import MovePlan
from gpucore.wire.documents import API_VERSION


class MoveDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod to move; units by index of the GPU."""

    namespace: str
    name: str
    from_node: str
    from_gpus: dict[str, int]
    to_node: str
    to_gpus: dict[str, int]


class DefragPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare defrag -o json``."""

    api_version: str
    kind: str
    node: str
    gpus: list[int]
    conclusion: str
    moves: list[MoveDoc]


def defrag_plan(plan: MovePlan, conclusion: str) -> DefragPlan:
    """The document of a plan, with its conclusion as a sentence."""
    moves = [
        MoveDoc(
            namespace=move.allocation.namespace,
            name=move.allocation.name,
            from_node=move.allocation.placement.node,
            from_gpus={str(i): units for i, units in move.allocation.placement.mem.items()},
            to_node=move.to.node,
            to_gpus={str(i): units for i, units in move.to.mem.items()},
        )
        for move in plan.moves
    ]
    return DefragPlan(API_VERSION, "DefragPlan", plan.node, list(plan.gpus), conclusion, moves)
