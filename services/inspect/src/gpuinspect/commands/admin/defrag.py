"""``gpushare defrag``: which pods to move so that something larger fits."""

import sys
from typing import Annotated

import msgspec
import typer

from gpucore.explain.sentences import unit_of
from gpucore.simulate.defrag import Goal, MovePlan, defragment
from gpucore.wire.documents import API_VERSION
from gpucore.wire.pods import pod_request_of
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.state import books
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, fail, reading
from gpuinspect.commands.options.selecting import Selector, selected
from gpuinspect.layout.defrag import conclusion
from gpuinspect.layout.defrag import defrag as table


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


@reading
def defrag(
    reader: Reader,
    *,
    cards: Annotated[int, typer.Option(help="number of GPUs of one node to free", min=0)] = 0,
    units: Annotated[
        int, typer.Option(help="number of memory units to free on one GPU", min=0)
    ] = 0,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Find the fewest pods to move so that GPUs become free; exit code 1 if no move helps."""
    if bool(cards) == bool(units):
        raise typer.BadParameter("give either --cards or --units")
    goal = Goal(cards, units)
    snapshot = reader.source.read(*COUNTED)
    ledger = books(snapshot, reader.names)
    nodes = selected(snapshot, selector).nodes
    takes = [node.name for node in nodes if node.ready and not node.unschedulable]
    node_infos = {name: ledger.nodes()[name] for name in takes}
    asked = ((pod.uid, pod_request_of(pod, reader.names)) for pod in snapshot.pods if pod.node)
    plan = defragment(node_infos, {uid: d for uid, d in asked if d is not None}, goal)
    if plan is None:
        fail("moving pods cannot free that capacity")
    unit = unit_of(node_infos[plan.node])
    if output.is_document:
        emit(_document(plan, conclusion(plan, goal, unit)), output)
    elif output is Format.NAME:
        names_only("pod", (move.allocation.name for move in plan.moves))
    else:
        sys.stdout.write(table(plan, goal, unit, headers=not no_headers))


def _document(plan: MovePlan, words: str) -> DefragPlan:
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
    return DefragPlan(API_VERSION, "DefragPlan", plan.node, list(plan.cards), words, moves)
