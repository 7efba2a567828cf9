"""Why the claims of a pod are pending, or what they hold: the sentences of ``explain``."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.claims.device_fit import Device, devices_of, misfit, shares_of
from gpucore.claims.facts import ClaimFacts
from gpucore.claims.node_fit import ClaimNode, ClaimRules, Need, needs_of, refusal
from gpucore.claims.objects import CLASS, MissingObject
from gpucore.claims.selectors import unknown_terms
from gpucore.explain.groups import grouped
from gpucore.explain.pod_states import Explanation, PodState
from gpucore.explain.sentences import gated, neighbours, placement_sentence, unit_words
from gpucore.kubescheduler.node_fit import constraint_refusals
from gpucore.model import Allocation, Code, FitError
from gpucore.scheduling.candidates import Candidates
from gpucore.steps import Steps, complete
from gpucore.units import MIB, NodeName
from gpucore.wire.claim.claim_specs import ALL, ClaimSpec, DeviceChoice
from gpucore.wire.names import CLAIM_DRIVER

FIRST_FIT = "kube-scheduler took the first GPU that fits, in the order of the node's ResourceSlice"
_STEPS = 4
"""Suggestions, at most."""
NO_PREEMPTION = "kube-scheduler does not preempt pods to free claims"


def claims_sentence(specs: Sequence[ClaimSpec]) -> str:
    """What claims request, in words."""
    parts = [
        _choice_words(request.choices[0])
        for spec in specs
        for request in spec.requests
        if request.choices
    ]
    return " and ".join(parts)


def requested(specs: Sequence[ClaimSpec]) -> tuple[int, int]:
    """MiB of shares and number of exclusive GPUs that claims request; "all devices" counts one."""
    choices = [each.choices[0] for spec in specs for each in spec.requests if each.choices]
    shares = (c.memory_mib * max(c.count, 1) for c in choices if c.memory_mib is not None)
    return sum(shares), sum(max(c.count, 1) for c in choices if c.memory_mib is None)


def _choice_words(choice: DeviceChoice) -> str:
    count = "every GPU" if choice.count == ALL else "one GPU"
    if choice.count > 1:
        count = f"each of {choice.count} GPUs"
    amounts = [_mib(choice.memory_mib)] if choice.memory_mib is not None else []
    amounts += [f"{choice.core} percent of compute"] if choice.core else []
    what = " and ".join(amounts) if choice.memory_mib is not None else "all memory"
    return f"{what} of {count} (DeviceClass {choice.device_class})"


def _mib(mib: int) -> str:
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def explain_claims(
    facts: ClaimFacts, nodes: Mapping[NodeName, ClaimNode], candidates: Candidates
) -> Explanation:
    """Why a pod with claims waits, or what it has."""
    return complete(explaining_claims(facts, nodes, candidates))


def explaining_claims(
    facts: ClaimFacts, nodes: Mapping[NodeName, ClaimNode], candidates: Candidates
) -> Steps[Explanation]:
    """As :func:`explain_claims`, in steps between which nothing may change."""
    request_summary = claims_sentence(facts.specs)
    base = Explanation(
        facts.pod,
        PodState.FINISHED,
        request_summary=request_summary,
        scheduler_record=facts.scheduler_record,
    )
    if facts.pod.finished:
        return base
    if facts.held:
        return _holding(base, facts, nodes)
    return (yield from _waiting(base, facts, nodes, candidates))


def _holding(
    base: Explanation, facts: ClaimFacts, nodes: Mapping[NodeName, ClaimNode]
) -> Explanation:
    held = [each for each in facts.held if each.placement.node in nodes]
    known = [each for each in held if each.placement.mem or each.placement.group]
    infos = {each.placement.node: nodes[each.placement.node].node_info for each in known}
    words = [f"{_held_words(each, infos)} (claim {each.name})" for each in known]
    offered = any(node.devices for node in nodes.values())
    starts = offered and base.pod.phase == "Pending"
    lost = [each for each in held if starts and _is_lost(each, nodes[each.placement.node])]
    return msgspec.structs.replace(
        base,
        state=PodState.PLACED if known else PodState.PENDING,
        where="; ".join(words),
        why=FIRST_FIT if known else "",
        helps=tuple(map(_lost_words, lost)),
        neighbours=tuple(
            line for each in known for line in neighbours(each, infos[each.placement.node], user_of)
        ),
    )


def _held_words(held: Allocation, infos: Mapping[NodeName, NodeInfo]) -> str:
    """In the unit of the node."""
    info = infos[held.placement.node]
    counted = {i: info.shape.counted(mem, held.unit) for i, mem in held.placement.mem.items()}
    placement = msgspec.structs.replace(held.placement, mem=counted)
    return placement_sentence(placement, unit_of(info))


def _is_lost(held: Allocation, node: ClaimNode) -> bool:
    """The node offers a GPU of the claim to no claims any more."""
    missing = any(index not in node.devices for index in held.placement.gpus)
    return bool(held.pending or held.pending_gpus) or missing


def _lost_words(held: Allocation) -> str:
    """What to do where the node may refuse to prepare the claim."""
    node = held.placement.node
    lists = f"claim {held.name} has a GPU that the ResourceSlice of node {node} does not list"
    return (
        f"{lists}, as after a change of its label gpushare/api or the loss of a GPU: delete the pod"
        " if its containers do not start"
    )


def user_of(held: Allocation) -> str:
    """The pod that uses a claim; the claim where none or several do."""
    users = held.users or ()
    if len(users) == 1:
        return f"{held.namespace}/{users[0][1]}"
    return f"{held.namespace}/{held.name}" + ("" if held.users is None else " (claim)")


def _waiting(
    base: Explanation,
    facts: ClaimFacts,
    nodes: Mapping[NodeName, ClaimNode],
    candidates: Candidates,
) -> Steps[Explanation]:
    refused: dict[NodeName, FitError] = {}
    for name, node in nodes.items():
        found = _refusal(name, node, facts, candidates)
        if found is not None:
            refused[name] = found
        yield
    error = _error(refused)
    fits = () if facts.missing or error else tuple(sorted(nodes.keys() - refused.keys()))
    gates = facts.constraints.gates
    steps = () if fits else (yield from _steps(facts, nodes, refused))
    helps = (*([gated(gates)] if gates else ()), *error, *_helps(facts, steps))
    groups = yield from grouped(refused, candidates.node_infos)
    state = PodState.FITS if fits else PodState.WAITING
    return msgspec.structs.replace(
        base,
        state=PodState.GATED if gates else state,
        groups=groups,
        fits=fits,
        helps=helps,
        gates=gates,
        refusals=refused,
    )


def _error(refused: Mapping[NodeName, FitError]) -> tuple[str, ...]:
    """What to do about a selector or a constraint that is an error for one GPU of the cluster."""
    for name, why in refused.items():
        if why.ends_attempt:
            ends = f"{why.detail} of node {name}, and kube-scheduler tries no other node"
            return (f"{ends}: {_correction(why.code)}",)
    return ()


def _correction(code: Code) -> str:
    if code is Code.DEVICE_CONSTRAINT:
        return "drop the constraint, or request a count"
    example = f'device.attributes["{CLAIM_DRIVER}"].?numaNode.orValue(-1) == 0'
    return f"allow for GPUs without the attribute or capacity, as in {example}"


def _refusal(
    name: NodeName, node: ClaimNode, facts: ClaimFacts, candidates: Candidates
) -> FitError | None:
    for claim, at in facts.allocated:
        if at != name:
            words = f"claim {claim} is allocated on node {at}"
            return FitError(name, Code.NODE_AFFINITY, detail=words, unresolvable=True)
    by_gpus = refusal(node, facts.rules)
    if by_gpus is not None and by_gpus.code is Code.NO_RESOURCE_SLICE:
        return by_gpus
    known = candidates.nodes.get(name)
    of_node = None if known is None else next(constraint_refusals(known, facts.constraints), None)
    return of_node or by_gpus


def _helps(facts: ClaimFacts, steps: Sequence[str]) -> Iterator[str]:
    yield from map(_missing_words, facts.missing)
    yield from list(dict.fromkeys(steps))[:_STEPS]
    others = [each for each in facts.constraints.unsupported if "claim" not in each]
    if others:
        yield f"not evaluated here: {', '.join(others)}"
    for term in unknown_terms(_selectors(facts.rules)):
        yield f"selector {term} is not evaluated here: every GPU is taken to match it"


def _missing_words(missing: MissingObject) -> str:
    if missing.kind == CLASS:
        words = "does not exist: the chart creates it (see 'gpushare doctor')"
        return f"{missing.kind} {missing.name} {words}"
    return f"create {missing.kind} {missing.name} in namespace {missing.namespace}"


def _selectors(rules: ClaimRules) -> Iterator[str]:
    for spec in rules.specs:
        for request in spec.requests:
            for choice in request.choices:
                known = rules.classes.get(choice.device_class)
                yield from (*(known.selectors if known else ()), *choice.selectors)


def _steps(
    facts: ClaimFacts, nodes: Mapping[NodeName, ClaimNode], refused: Mapping[NodeName, FitError]
) -> Steps[list[str]]:
    """The smallest step first: request less, then GPUs that are unhealthy, then pods that end."""
    near = [nodes[name] for name, why in refused.items() if why.gpus]
    if not near:
        offered = any(node.devices for node in nodes.values())
        return (
            [] if offered else ["no node offers GPUs as claims: label a node gpushare/api=claims"]
        )
    less: tuple[int, str] = (0, "")
    unhealthy: list[str] = []
    ended: list[tuple[int, NodeName, int, tuple[str, ...]]] = []
    for node in near:
        less = max(less, _less(facts.rules, node))
        if len(unhealthy) < _STEPS:
            unhealthy += _unhealthy(facts.rules, node)
        ended += _ended(facts.rules, node)
        yield
    found = [f"{less[1]} that much free"] if less[0] else []
    return [*found, *unhealthy, *([_end(min(ended))] if ended else [])]


def _less(rules: ClaimRules, node: ClaimNode) -> tuple[int, str]:
    best: tuple[int, str] = (0, "")
    unit = unit_of(node.node_info)
    for need, device in _single(rules, node):
        choice = need.ways[0].choice
        if choice.memory_mib is None or choice.count == ALL:  # it requests all memory, or all GPUs
            continue
        smallest = _with_memory(need, device.device.step_mib)
        free = device.free_mib // unit.mib
        if device.device.shared and not misfit(device, smallest.ways[0], MIB) and free:
            place = f"GPU {device.index} of node {node.node_info.name}"
            words = f"request at most {free} {unit_words(unit)}: {place} has"
            best = max(best, (free * unit.mib, words))
    return best


def _with_memory(need: Need, mib: int) -> Need:
    way = need.ways[0]
    choice = msgspec.structs.replace(way.choice, memory_mib=mib)
    return msgspec.structs.replace(need, ways=(msgspec.structs.replace(way, choice=choice),))


def _single(rules: ClaimRules, node: ClaimNode) -> Iterator[tuple[Need, Device]]:
    """The devices for claims that need one device; for several a single GPU is no help."""
    needs = needs_of(rules, node)
    if [need.count for need in needs] == [1]:
        for device in devices_of(node.node_info, node.devices):
            yield needs[0], device


def _unhealthy(rules: ClaimRules, node: ClaimNode) -> Iterator[str]:
    for need, device in _single(rules, node):
        healthy = msgspec.structs.replace(
            device, device=msgspec.structs.replace(device.device, taint="")
        )
        if device.device.taint and misfit(healthy, need.ways[0], MIB) is None:
            yield (
                f"GPU {device.index} of node {node.node_info.name} would fit, but has the taint"
                " gpu.gpushare.io/unhealthy: repair it, see the events of the node"
            )


def _ended(
    rules: ClaimRules, node: ClaimNode
) -> Iterator[tuple[int, NodeName, int, tuple[str, ...]]]:
    """The GPUs of a node that fit once pods have ended, with these pods."""
    for need, device in _single(rules, node):
        if ended := _enough(node, need, device):
            yield len(ended), node.node_info.name, device.index, ended


def _end(option: tuple[int, NodeName, int, tuple[str, ...]]) -> str:
    """The GPU on which the fewest pods would have to end."""
    _, name, index, ended = option
    return (
        f"it fits on GPU {index} of node {name} once {', '.join(ended)}"
        f" {'has' if len(ended) == 1 else 'have'} ended; {NO_PREEMPTION}"
    )


def _enough(node: ClaimNode, need: Need, device: Device) -> tuple[str, ...]:
    """Users whose end makes room, the largest shares first; empty where nothing helps."""
    gpu, unit = node.node_info.devices[device.index], unit_of(node.node_info)
    held = sorted(gpu.holders.items(), key=lambda pair: (-pair[1].mem, pair[0]))
    ended: list[str] = []
    for uid, hold in held:
        whole = gpu.total if hold.whole else hold.mem
        device = msgspec.structs.replace(
            device,
            free_mib=device.free_mib + whole * unit.mib,
            core_free=min(device.core_free + (100 if hold.whole else hold.core), 100),
            users=device.users - shares_of(node.node_info, uid, device.index),
        )
        ended.append(user_of(node.node_info.allocations[uid]))
        if misfit(device, need.ways[0], MIB) is None:
            return tuple(ended)
    return ()
