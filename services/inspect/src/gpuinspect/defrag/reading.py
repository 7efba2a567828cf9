"""The pods and nodes of a snapshot as defragmentation decides on them."""

from collections import Counter
from datetime import datetime
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.defrag.pods import (
    DefragPod,
    DefragState,
    is_leaving,
    running_obstacle,
    waiting_obstacle,
)
from gpucore.model import PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import UNSET_NAMES, same_scheduler
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.names import Names
from gpucore.wire.pod.controllers import Controller, controller_of
from gpucore.wire.pod.spec import Pod, deletion_end
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.collect import COUNTED
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import (
    SCHEDULER_CONFIGS,
    WEBHOOKS,
    Schedulers,
    policy_of,
    schedulers_of,
)
from gpuinspect.cluster.snapshots import Snapshot

READ: Final = (*COUNTED, SCHEDULER_CONFIGS, WEBHOOKS)
"""Lists that a decision needs besides nodes and pods."""
NOT_OURS: Final = "its scheduler does not call the extender, so the plan cannot place it again"


def defrag_state(
    snapshot: Snapshot, names: Names, *, now: datetime, waited_seconds: int, scheduler: str = ""
) -> DefragState:
    """The cluster at one moment.

    Args:
        waited_seconds: seconds for which a pod must have waited before pods are moved for it.
        scheduler: name of the only scheduler for whose pods pods are moved; empty for every
            scheduler that may call the extender.
    """
    ledger = ledger_of(snapshot, names)
    nodes = candidates(snapshot, ledger)
    schedulers = schedulers_of(snapshot, names)
    waiting: list[DefragPod] = []
    running: dict[PodUid, DefragPod] = {}
    with_claims: list[str] = []
    for pod, raw in snapshot.raw_pods():
        pod_request = pod_request_of(pod, names)
        if pod_request is None or pod.finished:
            if _waits_with_claims(pod):
                with_claims.append(f"{pod.namespace}/{pod.name}")
            continue
        constraints = pod_constraints(raw, names)
        if pod.node:
            controller = controller_of(raw)
            obstacle = _stays(pod, controller, constraints, ledger, nodes)
            if not obstacle and _is_of_others(pod, schedulers, scheduler):
                obstacle = NOT_OURS
            running[pod.uid] = _pod(pod, pod_request, constraints, obstacle, controller)
        elif not pod.gated and not pod.terminating:
            unseen = schedulers.misses(pod.scheduler_name)
            obstacle = f"its scheduler is not {scheduler}"
            if not scheduler or same_scheduler(scheduler, pod.scheduler_name):
                obstacle = _passed_over(
                    pod, constraints, unseen, now=now, waited_seconds=waited_seconds
                )
            found = _pod(pod, pod_request, constraints, obstacle)
            missed = bool(unseen) or _is_of_others(pod, schedulers, scheduler)
            waiting.append(msgspec.structs.replace(found, unseen=missed))
    living = [pod for pod in snapshot.pods if not (pod.terminating or pod.finished)]
    return DefragState(
        nodes,
        tuple(sorted(waiting, key=lambda pod: pod.queue_key)),
        running,
        Counter(pod.owner for pod in living if pod.owner),
        _leaving(snapshot, now),
        policy_of(snapshot),
        tuple(sorted(with_claims)) if nodes.offers.devices else (),
    )


def _leaving(snapshot: Snapshot, now: datetime) -> dict[PodUid, NodeName]:
    """The nodes of deleted pods that end soon."""
    pods = snapshot.raw_pods()
    deleted = ((pod, raw) for pod, raw in pods if pod.terminating)
    moment = now.timestamp()
    return {pod.uid: pod.node for pod, raw in deleted if is_leaving(deletion_end(raw), moment)}


def _waits_with_claims(pod: Pod) -> bool:
    """The pod requests no GPU resource; its claims may be for GPUs."""
    waits = not (pod.node or pod.finished or pod.gated or pod.terminating)
    return waits and bool(pod.claims or pod.claim_templates)


def _pod(
    pod: Pod,
    pod_request: PodRequest,
    constraints: PodConstraints,
    obstacle: str,
    controller: Controller | None = None,
) -> DefragPod:
    return DefragPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        pod_request=pod_request,
        constraints=constraints,
        priority=pod.priority,
        creation=pod.creation,
        owner=pod.owner,
        node=pod.node,
        resource_version=pod.resource_version,
        obstacle=obstacle,
        controller=controller,
        nominated=pod.nominated,
    )


def _stays(
    pod: Pod,
    controller: Controller | None,
    constraints: PodConstraints,
    ledger: Ledger,
    nodes: Candidates,
) -> str:
    allocation = ledger.allocation(pod.uid)
    if pod.claims or pod.node not in nodes.nodes or allocation is None:
        return "its GPUs are not known by its annotations"
    return running_obstacle(pod, controller, constraints)


def _is_of_others(pod: Pod, schedulers: Schedulers, ours: str) -> bool:
    """Whether a scheduler that does not call the extender places the pod, or its replacement.

    Args:
        ours: a scheduler that calls it, for those who may not read which do; empty for none.
    """
    if schedulers.names or not ours or pod.scheduler_name in UNSET_NAMES:
        return bool(schedulers.misses(pod.scheduler_name, new=True))
    return not same_scheduler(ours, pod.scheduler_name)


def _passed_over(
    pod: Pod,
    constraints: PodConstraints,
    unseen: str,
    *,
    now: datetime,
    waited_seconds: int,
) -> str:
    if pod.claims:
        return "it uses ResourceClaims, for which nothing is moved"
    if _age(pod.creation, now) < waited_seconds:
        return f"it has waited for less than {waited_seconds} s"
    return waiting_obstacle(pod, constraints, unseen)


def _age(creation: str, now: datetime) -> float:
    try:
        return (now - datetime.fromisoformat(creation)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
