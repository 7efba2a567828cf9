"""``gpushare defrag``: the fewest moves or evictions that make room for a larger request."""

import sys
from collections.abc import Collection
from typing import Annotated

import typer

from gpucore.accounting.node_info import NodeInfo, common_unit, unit_of
from gpucore.defrag.budgets import Budgets
from gpucore.defrag.pods import DefragState, fixed_reason, left_alone
from gpucore.explain.sentences import memory_words, placement_sentence
from gpucore.simulate.defrag import Goal, Move, MovePlan, defragment
from gpucore.units import MemoryUnit, counted
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.names import Names
from gpucore.wire.pod.controllers import controller_of
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.commands.options.formats import Format, NoHeaders, Output, emit, names_only
from gpuinspect.commands.options.reading import Reader, fail, note, note_all, reading
from gpuinspect.commands.options.selecting import Selector, selected
from gpuinspect.defrag.report import left
from gpuinspect.defrag.report import table as evictions
from gpuinspect.defrag.run import EvictionSettings, RunReport, plan_or_evict
from gpuinspect.documents.defrag import defrag_plan, eviction_plan
from gpuinspect.terminal.output import table


@reading
def defrag(
    reader: Reader,
    *,
    gpus: Annotated[
        int, typer.Option("--gpus", help="number of GPUs of one node to free", min=0)
    ] = 0,
    units: Annotated[
        int,
        typer.Option(
            help="memory to free on one GPU, in units of the nodes (GiB by default)", min=0
        ),
    ] = 0,
    selector: Selector = "",
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="without a goal: evict the pods of the plan, one after the other"
        ),
    ] = False,
    max_evictions: Annotated[
        int, typer.Option(help="maximum number of evictions in an hour", min=0)
    ] = Budgets().total,
    max_per_node: Annotated[
        int, typer.Option(help="maximum number of evictions on one node in an hour", min=0)
    ] = Budgets().per_node,
    max_per_namespace: Annotated[
        int,
        typer.Option(
            help="maximum number of evictions in an hour of pods of one namespace, and for pods"
            " of one namespace",
            min=0,
        ),
    ] = Budgets().per_namespace,
    across_namespaces: Annotated[
        bool,
        typer.Option(
            "--across-namespaces",
            help="evict pods of other namespaces than that of the waiting pod as well",
        ),
    ] = False,
    waited: Annotated[
        int,
        typer.Option(
            help="seconds for which a pod must have waited before pods are evicted for it", min=0
        ),
    ] = 120,
    scheduler: Annotated[
        str,
        typer.Option(
            help="evict only for waiting pods of this scheduler; default: for those of every"
            " scheduler that may call the extender",
            metavar="NAME",
        ),
    ] = "",
    lease: Annotated[
        str,
        typer.Option(
            help="Lease that excludes concurrent runs and remembers evictions",
            metavar="NAMESPACE/NAME",
        ),
    ] = "kube-system/gpushare-defrag",
    output: Output = Format.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Find the fewest pods to move so that a waiting pod fits, or so that GPUs become free.

    Without --gpus and --units: for the first waiting pod that fits by it. With one of them, exit
    code 1 if no move helps.
    """
    if gpus or units:
        if apply:
            raise typer.BadParameter("--apply takes neither --gpus nor --units")
        _free(reader, Goal(gpus, units), selector, output, no_headers=no_headers)
        return
    budgets = Budgets(max_evictions, max_per_node, max_per_namespace, across_namespaces)
    wanted = EvictionSettings(budgets, waited, scheduler, lease, apply=apply)
    _for_waiting(reader, wanted, output, no_headers=no_headers)


def _for_waiting(
    reader: Reader, wanted: EvictionSettings, output: Format, *, no_headers: bool
) -> None:
    report, state = plan_or_evict(reader.source, reader.names, wanted)
    _show(report, state, output, no_headers=no_headers)
    note_all(filter(None, [report.unchecked]))
    if report.failure is not None:
        note_all([left(report)])
        raise report.failure


def _show(report: RunReport, state: DefragState, output: Format, *, no_headers: bool) -> None:
    """What was done, or would be."""
    if output.is_document:
        emit(eviction_plan(report), output)
        return
    if output is Format.NAME:
        plan = report.found.plan
        planned = [each.pod for each in plan.evictions] if plan else []
        names_only("pod", (pod.name for pod in (report.evicted if report.applied else planned)))
        return
    sys.stdout.write(evictions(report, state.nodes.node_infos, headers=not no_headers))
    note_all(report.refused)
    for uid, reason in report.found.reasons.items():
        pod = next(pod for pod in state.waiting if pod.uid == uid)
        note(f"note: {pod}: {reason}")
    note_all(left_alone(state.nodes.node_infos.values(), state.with_claims))


def _free(reader: Reader, goal: Goal, selector: str, output: Format, *, no_headers: bool) -> None:
    """The moves that free GPUs, or memory of one GPU."""
    if goal.gpus and goal.units:
        raise typer.BadParameter("give either --gpus or --units")
    snapshot = reader.source.read(*COUNTED)
    ledger = ledger_of(snapshot, reader.names)
    nodes = selected(snapshot, selector).nodes
    takes = [node.name for node in nodes if node.ready and not node.unschedulable]
    node_infos = {name: ledger.nodes()[name] for name in takes}
    movable = (
        pod
        for pod, raw in snapshot.raw_pods()
        if pod.node and not fixed_reason(pod, controller_of(raw))
    )
    requests = ((pod.uid, pod_request_of(pod, reader.names)) for pod in movable)
    plan = defragment(
        node_infos,
        {uid: d for uid, d in requests if d is not None},
        goal,
        nodes=candidates(snapshot, ledger).nodes,
        constraints_of=lambda uid: pod_constraints(snapshot.raw_by_uid[uid], reader.names),
    )
    note_all((*left_alone(node_infos.values()), *gaps(snapshot, NO_CLAIMS)))
    if plan is None:
        fail(_impossible(goal, node_infos.values(), selector, reader.names))
    unit = unit_of(node_infos[plan.node])
    if output.is_document:
        emit(defrag_plan(plan, conclusion(plan, goal, unit)), output)
    elif output is Format.NAME:
        names_only("pod", (move.allocation.name for move in plan.moves))
    else:
        rows = [_row(move, unit, unit_of(node_infos[move.to.node])) for move in plan.moves]
        shown = table(("POD", "FROM", "TO"), rows, headers=bool(rows) and not no_headers)
        sys.stdout.write(shown if no_headers else f"{shown}{conclusion(plan, goal, unit)}\n")


def _impossible(goal: Goal, node_infos: Collection[NodeInfo], selector: str, names: Names) -> str:
    """What moves cannot free, and on which nodes they were looked for."""
    matching = f" that matches --selector {selector}" if selector else ""
    if not node_infos:
        return f"no node{matching} is ready and schedulable"
    shapes = [node_info.shape for node_info in node_infos]
    if not any(s.offers_gpus if goal.gpus else s.offers_shares for s in shapes):
        resource = names.gpu if goal.gpus else names.gpu_mem
        return f"no ready and schedulable node{matching} offers {resource}"
    memory = memory_words(goal.units, common_unit(node_infos))
    what = memory if goal.units else counted(goal.gpus, "GPU")
    return f"moving pods cannot free {what} on {'one GPU' if goal.units else 'one node'}{matching}"


def conclusion(plan: MovePlan, goal: Goal, unit: MemoryUnit) -> str:
    """A sentence with the capacity that the moves free."""
    gpus = ", ".join(map(str, plan.gpus))
    noun = "GPU" if len(plan.gpus) == 1 else "GPUs"
    where = f"{noun} {gpus}"
    what = f"{memory_words(goal.units, unit)} on {where}" if goal.units else where
    if not plan.moves:
        verb = "is" if goal.units or len(plan.gpus) == 1 else "are"
        return f"nothing needs to move: {what} of node {plan.node} {verb} free already"
    return f"moving {counted(len(plan.moves), 'pod')} frees {what} of node {plan.node}"


def _row(move: Move, unit: MemoryUnit, to_unit: MemoryUnit) -> tuple[str, ...]:
    allocation = move.allocation
    origin = placement_sentence(allocation.placement, allocation.unit or unit)
    name = f"{allocation.namespace}/{allocation.name}"
    return (name, origin, placement_sentence(move.to, to_unit))
