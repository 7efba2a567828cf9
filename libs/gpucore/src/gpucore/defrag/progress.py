"""Whether a plan still holds before its next eviction, judged on the cluster as it is then.

Evicted pods may still be there, being deleted, and their replacements may be missing, pending or
placed. The plan holds while the waiting pod fits nowhere, or an evicted pod does without further
evictions, the pods that are left to evict are where they were, and what-if still places the waiting
pod and every replacement.
"""

from collections.abc import Collection, Sequence

from gpucore.defrag.planning import Eviction, EvictionPlan, fitting_node, origin_of, simulate
from gpucore.defrag.pods import DefragPod, DefragState, preemption
from gpucore.units import PodUid


def check_plan(plan: EvictionPlan, evicted: Collection[PodUid], state: DefragState) -> str:
    """Why no further pod of a plan is evicted; empty where the next one is.

    Args:
        evicted: UIDs of those that this plan has evicted.
        state: read after the last eviction.
    """
    waiting = next((pod for pod in state.waiting if pod.uid == plan.waiting.uid), None)
    if waiting is not None and (reason := _passed_over(waiting, plan, evicted, state)):
        return reason
    missing = _without_replacement(plan, evicted, state)
    owners = {one.pod.owner for one in plan.evictions if one.pod.uid in evicted}
    pending = [
        pod.uid for pod in state.waiting if pod.owner in owners and pod.uid not in plan.waited
    ]
    left = [one for one in plan.evictions if one.pod.uid not in evicted]
    done = [one.pod.uid for one in plan.evictions if one.pod.uid in evicted]
    reason = _served(waiting, plan, state)
    if reason and (
        not done or simulate(state, waiting, done, missing, pending=pending) is not None
    ):
        return reason
    for each in left:
        if reason := _moved(each, state):
            return reason
    gone = [*done, *(one.pod.uid for one in left)]
    replaced = [*missing, *(one.pod for one in left)]
    if simulate(state, waiting, gone, replaced, pending=pending) is None:
        return "what-if does not place every pod of the plan any more"
    return ""


def _served(waiting: DefragPod | None, plan: EvictionPlan, state: DefragState) -> str:
    """Why the waiting pod needs no further eviction; the evicted pods may."""
    if waiting is None:
        return f"{plan.waiting} does not wait any more"
    return f"{waiting} fits already" if fitting_node(state.nodes, waiting) else ""


def _passed_over(
    waiting: DefragPod, plan: EvictionPlan, evicted: Collection[PodUid], state: DefragState
) -> str:
    if waiting.obstacle or waiting.pod_request != plan.waiting.pod_request:
        return f"{waiting} has changed"
    if obstacle := preemption(state, waiting, evicted):
        return f"{waiting} needs no eviction: {obstacle}"
    return ""


def _moved(eviction: Eviction, state: DefragState) -> str:
    now = state.running.get(eviction.pod.uid)
    if now is None:
        return f"{eviction.pod} is gone"
    if now.obstacle:
        return f"{now} stays: {now.obstacle}"
    if now.node != eviction.pod.node or origin_of(state, now) != eviction.origin:
        return f"{now} has other GPUs than planned"
    return ""


def _without_replacement(
    plan: EvictionPlan, evicted: Collection[PodUid], state: DefragState
) -> Sequence[DefragPod]:
    """Evicted pods whose controller has not created another pod yet."""
    return [
        one.pod
        for one in plan.evictions
        if one.pod.uid in evicted
        and state.pods_of.get(one.pod.owner, 0) < plan.pods_of.get(one.pod.owner, 0)
    ]
