"""What if these pods came, and these nodes: answered on a copy of the cluster.

The pods are placed one after the other with the code that places real ones, on the nodes that
kube-scheduler's own rules admit. The rules that are not evaluated are noted beside the answer.

An answer also states why kube-scheduler may choose another node than the extender would.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gpucore.accounting.claim_offers import ClaimOffers
from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.explain.groups import Group, grouped
from gpucore.explain.sentences import gated, with_unit
from gpucore.model import FitError
from gpucore.model.constraints import CandidateNode
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import (
    BURST_PERCENTAGE,
    LEAST_EVALUATED,
    ClusterPolicy,
    ExpectedProfile,
    SchedulerProfiles,
    expected_profile,
    profiles_for,
)
from gpucore.scheduling.host_rooms import use_mix
from gpucore.scheduling.pending_pods import Nominations
from gpucore.simulate.manifests import WorkloadPods
from gpucore.simulate.whatif import SimulatedCluster, WhatIfOutcome, WhatIfPod
from gpucore.steps import Steps
from gpucore.units import MemoryUnit, NodeName
from gpucore.wire.constraints import CLAIMS_UNSUPPORTED
from gpucore.wire.names import Names
from gpucore.wire.node.group_template import lasting
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.overrides import overrides
from gpucore.wire.whole_requests import pod_request_of

MOST_REFUSALS: Final = 100
"""Nodes whose refusals are kept for one pod; the groups name all nodes."""
BY_CLAIMS: Final = "kube-scheduler does not score the GPUs of claims: nominations are hints"
PER_NODE: Final = (
    "a DaemonSet has one pod for each node that its node selector, node affinity and tolerations"
    " admit"
)
IN_GANG: Final = (
    "the pods of a gang are placed together or not at all, but here each is placed by itself"
)
KINDS: Final = 4
"""Maximum number of different pods whose results on all nodes are cached."""


class Answer(msgspec.Struct, frozen=True):
    """Where one pod would be placed, or why it fits no node.

    Attributes:
        outcome: its placement, or the first refusals by name of the node.
        unit: what the placement is counted in.
        groups: why it fits nowhere; empty where it does.
        refusing: number of nodes that refuse it.
        likely: why it may get another place, in words; empty where this one is certain.
        scheduler: ``spec.schedulerName`` that it has once it is created; empty unknown.
    """

    outcome: WhatIfOutcome
    unit: MemoryUnit | None = None
    groups: tuple[Group, ...] = ()
    refusing: int = 0
    likely: tuple[str, ...] = ()
    scheduler: str = ""

    @property
    def fits(self) -> bool:
        """It has a place."""
        return self.outcome.placement is not None


def answers(
    cluster: Candidates,
    whatif_pods: Iterable[WhatIfPod],
    policy: ClusterPolicy,
    *,
    queued: int = 0,
    nominations: Nominations | None = None,
) -> Steps[list[Answer]]:
    """The results of the pods, in order.

    Args:
        cluster: every node, by name; it is not changed.
        policy: what holds where neither pod nor node names a policy.
        queued: number of pods that wait for the scheduler now.
    """
    simulated = SimulatedCluster.of(cluster, policy, kinds=KINDS, nominations=nominations)
    profiles = profiles_for(policy.profiles, cluster.node_infos.values())
    refused: dict[WhatIfPod, Answer] = {}
    found: list[Answer] = []
    for whatif_pod in whatif_pods:
        kind = msgspec.structs.replace(whatif_pod, name="")
        if kind in refused:
            found.append(_named(refused[kind], whatif_pod.name))
            continue
        outcome = yield from simulated.granting(whatif_pod)
        answer = yield from _answer(outcome, simulated)
        profile = _profile(whatif_pod, profiles, queued=queued, before=len(found))
        open_points = tuple(uncertainties(whatif_pod, outcome, policy, len(cluster.nodes), profile))
        answer = msgspec.structs.replace(answer, likely=open_points, scheduler=profile.scheduler)
        found.append(answer)
        if answer.fits:
            refused.clear()
        else:
            refused[kind] = answer
    return found


def _profile(
    whatif_pod: WhatIfPod, profiles: SchedulerProfiles, *, queued: int, before: int
) -> ExpectedProfile:
    """The profile that the pod gets; the webhook leaves pods with claims to their scheduler."""
    if whatif_pod.specs:
        return ExpectedProfile(whatif_pod.scheduler)
    return expected_profile(
        profiles, whatif_pod.scheduler, gang=whatif_pod.gang, queued=queued, before=before
    )


def with_added(cluster: Candidates, *, count: int, like: NodeName) -> Candidates:
    """The cluster with ``count`` more nodes, empty and made like one of its own.

    They have nothing of the state that this node is in, such as a cordon or an unhealthy GPU.
    """
    known, model = cluster.node_infos[like], cluster.nodes[like]
    shape, taints = _as_new(known.shape), lasting(model.taints)
    node_infos: dict[NodeName, NodeInfo] = {}
    nodes: dict[NodeName, CandidateNode] = {}
    for number in range(1, count + 1):
        name = NodeName(f"{like}+{number}")
        node_infos[name] = NodeInfo(name, shape)
        nodes[name] = CandidateNode(
            name, labels=model.labels, taints=taints, allocatable=model.allocatable
        )
    use_mix(node_infos, nodes, known.host.mix if known.host is not None else None)
    return Candidates(
        {**cluster.node_infos, **node_infos},
        {**cluster.nodes, **nodes},
        cluster.requests,
        _offers_with(cluster, node_infos, like),
    )


def _as_new(shape: NodeCapacity) -> NodeCapacity:
    """The capacity with all GPUs healthy and the device plugin there."""
    new = shape.without_pods()
    inventory = new.inventory
    if inventory is not None:
        gpus = tuple(msgspec.structs.replace(gpu, healthy=True) for gpu in inventory.gpus)
        inventory = msgspec.structs.replace(inventory, gpus=gpus, serving=True)
    return msgspec.structs.replace(new, inventory=inventory, unhealthy=frozenset())


def _offers_with(cluster: Candidates, names: Iterable[NodeName], like: NodeName) -> ClaimOffers:
    """New nodes offer what the node ``like`` offers, with all devices healthy."""
    known = cluster.offers.devices
    if like not in known:
        return cluster.offers
    added = {index: msgspec.structs.replace(each, taint="") for index, each in known[like].items()}
    devices = dict.fromkeys(names, added)
    return msgspec.structs.replace(cluster.offers, devices={**known, **devices})


def _named(answer: Answer, name: str) -> Answer:
    """The same answer for an equal pod; nothing was placed in between."""
    outcome = msgspec.structs.replace(answer.outcome, name=name)
    return msgspec.structs.replace(answer, outcome=outcome)


def _answer(outcome: WhatIfOutcome, simulated: SimulatedCluster) -> Steps[Answer]:
    if outcome.placement is not None:
        return Answer(outcome, unit=unit_of(simulated.node_infos[outcome.placement.node]))
    groups = yield from grouped(outcome.refusals, simulated.node_infos)
    few: dict[NodeName, FitError] = {
        name: with_unit(outcome.refusals[name], simulated.node_infos[name])
        for name in sorted(outcome.refusals)[:MOST_REFUSALS]
    }
    shown = msgspec.structs.replace(outcome, refusals=few)
    return Answer(shown, groups=groups, refusing=len(outcome.refusals))


def evaluated_nodes(nodes: int, percentage: int) -> int:
    """How many of the nodes that fit by its own rules kube-scheduler passes to an extender.

    Args:
        percentage: ``percentageOfNodesToScore``; 0 is the default, which depends on ``nodes``.
    """
    part = percentage or max(50 - nodes // 125, 5)
    return nodes if part >= 100 else min(nodes, max(LEAST_EVALUATED, nodes * part // 100))


def uncertainties(
    whatif_pod: WhatIfPod,
    outcome: WhatIfOutcome,
    policy: ClusterPolicy,
    nodes: int,
    profile: ExpectedProfile,
) -> Iterator[str]:
    """What may make the cluster decide otherwise, in words; nothing where the answer is certain."""
    if whatif_pod.gang:
        yield "the pods of its gang are placed together"
    constraints = whatif_pod.constraints
    by_claims = {CLAIMS_UNSUPPORTED} if whatif_pod.specs else set()
    unsupported = [each for each in constraints.unsupported if each not in by_claims]
    if unsupported:
        yield f"not evaluated: {', '.join(unsupported)}"
    if outcome.fitting < 2:
        return
    if whatif_pod.specs:
        yield BY_CLAIMS
    elif constraints.preferences:
        yield f"kube-scheduler weighs {', '.join(constraints.preferences)}"
    elif policy.candidates != 1:
        among = min(policy.candidates or outcome.fitting, outcome.fitting)
        yield f"kube-scheduler chooses among {among} nodes"
    evaluated = evaluated_nodes(nodes, BURST_PERCENTAGE if profile.burst else policy.percentage)
    if evaluated < nodes:
        yield f"kube-scheduler evaluates {evaluated} of {nodes} nodes{_why_few(profile)}"
    elif profile.doubtful:
        few = evaluated_nodes(nodes, BURST_PERCENTAGE)
        yield f"while a burst lasts kube-scheduler evaluates {few} of {nodes} nodes"


def _why_few(profile: ExpectedProfile) -> str:
    if not profile.burst:
        return ""
    if not profile.queued:
        return f", as profile {profile.scheduler} does"
    return f", as profile {profile.scheduler} does: {profile.queued} pods wait before this one"


def notes_of(
    wanted: WorkloadPods, names: Names, nominations: Nominations | None = None
) -> Iterator[str]:
    """What an answer leaves open about a pod, as sentences."""
    name, needs = wanted.pod.name, wanted.constraints
    if wanted.per_node:
        yield f"{name}: {PER_NODE}"
    if needs.gates:
        yield f"{name}: {gated(needs.gates)}"
    if gang_of(wanted.pod) is not None:
        yield f"{name}: {IN_GANG}"
    by_claims = pod_request_of(wanted.pod, names) is None
    containers = (*wanted.pod.containers, *wanted.pod.init_containers)
    for box, variables in overrides(containers, requests_gpus=not by_claims).items():
        refused = "the webhook and the admission policy refuse the pod: remove it"
        yield f"{name}: container {box} sets {' and '.join(variables)}, and {refused}"
    evaluated = {CLAIMS_UNSUPPORTED} if by_claims else set()
    unsupported = [each for each in needs.unsupported if each not in evaluated]
    if unsupported:
        yield f"{name}: not evaluated: {', '.join(unsupported)}"
    if nominations and wanted.priority_class:
        unread = f"PriorityClass {wanted.priority_class} is not read"
        yield f"{name}: {unread}, priority 0 is assumed: set spec.priority in the manifest"
