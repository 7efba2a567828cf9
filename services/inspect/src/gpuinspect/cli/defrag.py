"""``gpushare defrag``: which pods to move so that something larger fits."""

import sys
from typing import Annotated

import msgspec
import typer

from gpucore.defrag import Goal, Plan, defragment
from gpucore.explain import unit_of
from gpucore.wire.pods import demand_of
from gpuinspect.cli.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.cli.reading import Reader, fail, reading
from gpuinspect.cli.selecting import Selector, selected
from gpuinspect.collect import CONFIG_MAPS
from gpuinspect.documents import API_VERSION
from gpuinspect.layout.defrag import conclusion
from gpuinspect.layout.defrag import defrag as table
from gpuinspect.state import books


class MoveDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One pod to move; units by index of the card."""

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
    cards: Annotated[int, typer.Option(help="free so many whole cards of a node", min=0)] = 0,
    units: Annotated[int, typer.Option(help="free so many units on one card", min=0)] = 0,
    selector: Selector = "",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Name the fewest pods whose move makes room; exit code 1 where no move does."""
    if bool(cards) == bool(units):
        raise typer.BadParameter("give either --cards or --units")
    goal = Goal(cards, units)
    snapshot = reader.source.read(CONFIG_MAPS)
    ledger = books(snapshot, reader.names)
    nodes = selected(snapshot, selector).nodes
    takes = [node.name for node in nodes if node.ready and not node.unschedulable]
    accounts = {name: ledger.nodes()[name] for name in takes}
    asked = ((pod.uid, demand_of(pod, reader.names)) for pod in snapshot.pods if pod.node)
    plan = defragment(accounts, {uid: d for uid, d in asked if d is not None}, goal)
    if plan is None:
        fail("no move of pods makes that room")
    unit = unit_of(accounts[plan.node])
    if output in {Format.JSON, Format.YAML}:
        emit(_document(plan, conclusion(plan, goal, unit)), output)
    elif output is Format.NAME:
        names_only("pod", (move.claim.name for move in plan.moves))
    else:
        sys.stdout.write(table(plan, goal, unit, headers=not no_headers))


def _document(plan: Plan, words: str) -> DefragPlan:
    moves = [
        MoveDoc(
            namespace=move.claim.namespace,
            name=move.claim.name,
            from_node=move.claim.placement.node,
            from_gpus={str(i): units for i, units in move.claim.placement.mem.items()},
            to_node=move.to.node,
            to_gpus={str(i): units for i, units in move.to.mem.items()},
        )
        for move in plan.moves
    ]
    return DefragPlan(API_VERSION, "DefragPlan", plan.node, list(plan.cards), words, moves)
