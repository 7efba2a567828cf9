"""The answer of ``gpushare defrag`` for people."""

from gpucore.explain.sentences import placement_sentence
from gpucore.simulate.defrag import Goal, Move, MovePlan
from gpucore.units import MemoryUnit
from gpuinspect.terminal.tables import align


def defrag(plan: MovePlan, goal: Goal, unit: MemoryUnit, *, headers: bool = True) -> str:
    """A line a move, then what they free."""
    rows = "".join(_row(move, unit) for move in plan.moves)
    if not headers:
        return align(rows)
    head = "POD\tFROM\tTO\n" if rows else ""
    return align(head + rows) + f"{conclusion(plan, goal, unit)}\n"


def conclusion(plan: MovePlan, goal: Goal, unit: MemoryUnit) -> str:
    """A sentence with the capacity that the moves free."""
    gpus = ", ".join(map(str, plan.gpus))
    noun = "GPU" if len(plan.gpus) == 1 else "GPUs"
    what = f"{goal.units} {unit} on {noun} {gpus}" if goal.units else f"{noun} {gpus}"
    if not plan.moves:
        verb = "is" if goal.units or len(plan.gpus) == 1 else "are"
        return f"nothing needs to move: {what} of node {plan.node} {verb} free already"
    pods = "1 pod" if len(plan.moves) == 1 else f"{len(plan.moves)} pods"
    return f"moving {pods} frees {what} of node {plan.node}"


def _row(move: Move, unit: MemoryUnit) -> str:
    allocation = move.allocation
    origin = placement_sentence(allocation.placement, allocation.unit or unit)
    return (
        f"{allocation.namespace}/{allocation.name}\t{origin}\t{placement_sentence(move.to, unit)}\n"
    )
