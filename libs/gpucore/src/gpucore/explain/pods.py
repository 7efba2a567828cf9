"""Why a pod waits, or where it sits: the extender's own decision, taken again and written down.

The same code decides as in the scheduler extender, so the reasons are the reasons; the rules of
kube-scheduler that are not evaluated are named, and the scheduler's message is quoted.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo, common_unit, unit_of
from gpucore.explain.gangs import gang_words
from gpucore.explain.groups import grouped
from gpucore.explain.pod_states import Cluster, Explanation, PodFacts, PodState
from gpucore.explain.sentences import (
    gated,
    gpus_named,
    memory_words,
    neighbours,
    placement_sentence,
    reserved_words,
    sentence,
    with_unit,
)
from gpucore.explain.suggestions import NAMED, suggest
from gpucore.gang.placement import place_gang
from gpucore.gang.values import GangPlacement, Shortage
from gpucore.model import Allocation, FitError, Placement, PodRequest
from gpucore.model.constraints import CandidateNode, PodConstraints
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.device_fit import exclusive_devices
from gpucore.scheduling.grouping import SIMPLE, Grouping, Rules
from gpucore.scheduling.nominated import NONE_NOMINATED, CandidatesBesideNominated
from gpucore.scheduling.policy import place, resolve
from gpucore.steps import Steps
from gpucore.units import GpuIndex, MemoryUnit, NodeName
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod

_UNPLACED: Final = (
    "the scheduler that bound it did not call the extender: name the scheduler in its"
    " spec.schedulerName and create it again (see 'gpushare doctor')"
)
_CHANGED: Final = (
    "the annotations that name its GPU were changed: create the pod again, and restrict write"
    " access to annotations (see 'gpushare doctor')"
)
_UNCONFIRMED: Final = (
    "{node} is not ready, so that its kubelet does not confirm the end of the containers: the pod"
    " ends when the node is ready again; if the machine is certainly off, delete its Node object"
)
_RULES: Final = {
    "binpack": "the fullest GPU that fits, the lowest index among equals",
    "spread": "the emptiest GPU that fits, the lowest index among equals",
    "fragmentation": "the GPU on which the least usable capacity is lost",
}


def explain_pod(facts: PodFacts, cluster: Cluster) -> Steps[Explanation]:
    """Why a pod waits or where it sits."""
    pod, pod_request = facts.pod, facts.pod_request
    if pod_request is None:
        return Explanation(pod, PodState.ASKS_NOTHING, scheduler_record=facts.scheduler_record)
    base = Explanation(
        pod,
        PodState.FINISHED,
        request_summary=request_sentence(pod_request, _unit(facts, cluster)),
        scheduler_record=facts.scheduler_record,
        policy=cluster.policy,
        pod_request=pod_request,
    )
    if pod.finished:
        return base
    allocation = cluster.ledger.allocation(pod.uid)
    if allocation is not None:
        return _placed(base, allocation, pod_request, cluster)
    found = yield from _waiting(base, facts, pod_request, cluster)
    return _never_scheduled(found, facts)


def _unit(facts: PodFacts, cluster: Cluster) -> MemoryUnit | None:
    """What the pod's amounts are counted in: by its node, or by all nodes that it could use."""
    allocation, node_infos = cluster.ledger.allocation(facts.pod.uid), cluster.nodes.node_infos
    if allocation is None:
        return common_unit(node_infos.values())
    node_info = cluster.ledger.nodes()[allocation.placement.node]
    return allocation.unit or (unit_of(node_info) if node_info.devices else None)


def request_sentence(pod_request: PodRequest, unit: MemoryUnit | None) -> str:
    """What a pod requests, in words; memory in ``unit``."""
    if pod_request.gpus:
        return f"{pod_request.gpus} exclusive GPU{'s' if pod_request.gpus > 1 else ''}"
    parts = [f"{memory_words(pod_request.mem, unit)} of memory"] if pod_request.mem else []
    parts += [f"{pod_request.core} percent of compute"] if pod_request.core else []
    spread = (
        f", spread over {pod_request.gpu_count} GPUs"
        if pod_request.gpu_count > 1
        else " on one GPU"
    )
    alone = ", alone on it" if pod_request.whole_device else ""
    isolation = (
        f", enforced by {pod_request.isolation.value}"
        if pod_request.isolation.value != "none"
        else ""
    )
    burst = f", up to {memory_words(pod_request.burst, unit)}" if pod_request.burst else ""
    return " and ".join(parts) + spread + alone + burst + isolation


def _placed(
    base: Explanation, allocation: Allocation, pod_request: PodRequest, cluster: Cluster
) -> Explanation:
    node_info = cluster.ledger.nodes()[allocation.placement.node]
    known = bool(allocation.placement.gpus)
    lost = sorted(node_info.lost_gpus.intersection(allocation.placement.gpus))
    return msgspec.structs.replace(
        base,
        state=PodState.PLACED if known else PodState.PENDING,
        where=placement_sentence(allocation.placement, allocation.unit or unit_of(node_info)),
        why=placement_reason(allocation, pod_request, node_info, base.policy)
        if known and node_info.present and not lost
        else "",
        neighbours=tuple(neighbours(allocation, node_info, _named)) if node_info.present else (),
        faults=allocation.faults,
        helps=tuple(_placed_helps(base.pod, allocation, lost, node_info, cluster.nodes.nodes)),
    )


def _placed_helps(
    pod: Pod,
    allocation: Allocation,
    lost: Sequence[GpuIndex],
    node_info: NodeInfo,
    nodes: Mapping[NodeName, CandidateNode],
) -> Iterator[str]:
    """What to do about a pod that is bound to a node."""
    name = allocation.placement.node
    if not allocation.placement.gpus:
        yield _CHANGED if allocation.faults else _UNPLACED
    if not node_info.present:
        yield f"node {name} does not exist: delete the pod, and create it again"
    if lost:
        yield f"{name} no longer has {gpus_named(lost)}: delete the pod, and create it again"
    node = nodes.get(name)
    if pod.terminating and node is not None and not node.ready:
        yield _UNCONFIRMED.format(node=name)


def placement_reason(
    allocation: Allocation, pod_request: PodRequest, node_info: NodeInfo, policy: ClusterPolicy
) -> str:
    """A sentence about the pod's GPUs on its node: the choice is repeated with the current state.

    The ledger does not have the state of the time when the pod was placed. A choice that would
    differ now is reported; it is not a fault. The node stays as it is.
    """
    without = node_info.copy()
    without.drop(allocation.uid)
    again = place(without, pod_request, policy.name, grouping=policy.grouping)
    if isinstance(again, FitError):
        return f"it would not fit here now: {sentence(again)}"
    if pod_request.gpus:
        return _whole(
            allocation.placement.group, again.group, pod_request, without, policy.grouping
        )
    name = resolve(without, pod_request, policy.name).name
    rule = _rule(name, pod_request, without, policy.grouping)
    if _gpus(again) == _gpus(allocation.placement):
        return f"{name} would choose the same again: {rule}"
    other = placement_sentence(again, unit_of(node_info))
    return f"{name} would choose {other} now ({rule}); the usage of the GPUs has changed since then"


def _rule(name: str, pod_request: PodRequest, node_info: NodeInfo, grouping: Grouping) -> str:
    """How the policy ``name`` chooses; the links come first for a share of several GPUs."""
    topology = pod_request.topology or grouping.policy
    if pod_request.gpu_count == 1 or topology == SIMPLE or not node_info.shape.matrix.links:
        return _RULES[name]
    return f"of the groups that are connected as {topology} requires, the one with {_RULES[name]}"


def _whole(
    mine: tuple[GpuIndex, ...],
    again: tuple[GpuIndex, ...],
    pod_request: PodRequest,
    without: NodeInfo,
    grouping: Grouping,
) -> str:
    matrix = without.shape.matrix
    name = pod_request.topology or f"{grouping.policy} (the default)"
    free = len(exclusive_devices(without.devices.values(), pod_request))
    choice = f"of the {free} GPUs that are free without this pod"
    if set(mine) == set(again):
        score = f"; they score {matrix.sum_of(mine)}" if matrix.links and mine[1:] else ""
        return f"{name} would choose the same {choice}{score}"
    if not matrix.links:
        return f"{name} would choose {gpus_named(again)} now, {choice}; the node reports no links"
    scores = f"they score {matrix.sum_of(again)}, its own {matrix.sum_of(mine)}"
    return f"{name} would choose {gpus_named(again)} now, {choice}: {scores}"


def _gpus(placement: Placement) -> frozenset[int]:
    return frozenset((*placement.mem, *placement.core))


def _named(held: Allocation) -> str:
    return f"{held.namespace}/{held.name}"


def _waiting(
    base: Explanation, facts: PodFacts, pod_request: PodRequest, cluster: Cluster
) -> Steps[Explanation]:
    pod, nodes = PodRequirements(pod_request, facts.constraints), _beside_nominated(facts, cluster)
    verdicts: dict[NodeName, FitError | None] = {}
    for name in nodes.nodes:
        verdicts[name] = nodes.refusal(name, pod)
        yield
    refused = {name: verdict for name, verdict in verdicts.items() if verdict is not None}
    fits = tuple(sorted(verdicts.keys() - refused.keys()))
    kept = {name: why.reserved_for for name, why in refused.items() if why.reserved_for}
    others = {name: verdict for name, verdict in verdicts.items() if name not in kept}
    groups = yield from grouped(refused, nodes.node_infos)
    nearest = [] if fits else sorted(kept.items())[:NAMED]
    helps = [f"{name}: {reserved_words(pods)}" for name, pods in nearest]
    if others or not kept:
        helps += yield from suggest(pod, nodes, others, grouping=base.policy.grouping)
    found = msgspec.structs.replace(
        base,
        state=PodState.FITS if fits else PodState.WAITING,
        groups=groups,
        fits=fits,
        helps=tuple(helps),
        refusals={name: with_unit(why, nodes.node_infos[name]) for name, why in refused.items()},
    )
    return _with_gang(found, facts, pod_request, cluster)


def _beside_nominated(facts: PodFacts, cluster: Cluster) -> Candidates:
    """The nodes with the pods nominated to them that take precedence over the pod."""
    nominations = cluster.nominations
    if not nominations:
        return cluster.nodes
    nominated = {name: nominations.before(name, facts.pod) for name in nominations.nodes()}
    return CandidatesBesideNominated(**msgspec.structs.asdict(cluster.nodes), nominated=nominated)


def _with_gang(
    found: Explanation, facts: PodFacts, pod_request: PodRequest, cluster: Cluster
) -> Explanation:
    """A pod of a gang that would fit alone: it waits until all pods can be placed."""
    gang, members = facts.gang or gang_of(facts.pod), facts.members
    ledger = cluster.ledger
    if gang is None or members is None or not found.fits:
        return found
    rules = Rules(found.policy.name, found.policy.grouping)
    answer = place_gang(
        ledger,
        gang,
        pod_request,
        frozenset(found.fits),
        rules,
        members=members,
        now_ns=0,
        nominated=cluster.nominations.beside(facts.pod) if cluster.nominations else NONE_NOMINATED,
    )
    words = tuple(gang_words(answer, ledger, rules))
    if not isinstance(answer, GangPlacement):
        waits = isinstance(answer, Shortage)
        state = PodState.GANG_WAITS if waits else PodState.GANG_INCOMPLETE
        return msgspec.structs.replace(found, state=state, helps=words)
    return msgspec.structs.replace(found, helps=(*found.helps, *words))


def _never_scheduled(found: Explanation, facts: PodFacts) -> Explanation:
    """What keeps every scheduler, or every scheduler of ours, away goes before the rest."""
    gates = facts.constraints.gates
    first = [*([gated(gates)] if gates else []), *([facts.unseen] if facts.unseen else [])]
    return msgspec.structs.replace(
        found,
        state=PodState.GATED if gates else found.state,
        gates=gates,
        helps=(*first, *found.helps),
    )


def likeness(pod: Pod, pod_request: PodRequest, constraints: PodConstraints) -> object:
    """What pods have in common that one explanation holds for."""
    nominated = pod.uid if pod.nominated else ""
    return pod_request, constraints, pod.scheduler_name, gang_of(pod), pod.priority, nominated
