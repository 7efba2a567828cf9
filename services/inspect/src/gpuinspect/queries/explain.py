"""The data of a snapshot about one of its pods, and the core's explanation of it."""

from collections.abc import Iterable

from gpucore.accounting.ledger import Ledger
from gpucore.explain.pod_states import Cluster, Explanation, PodFacts
from gpucore.explain.pods import explain_pod
from gpucore.gang.members import Member, Members, member_of, members_of
from gpucore.model import Allocation, PodRequest
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.pending_pods import nominations_of
from gpucore.steps import complete
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.scheduler_events import scheduler_record
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.candidates import candidates
from gpuinspect.cluster.schedulers import Schedulers, policy_of, schedulers_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import SHOWN, MissingObjectError, similar_names


def find(snapshot: Snapshot, *, namespace: str, name: str) -> Pod:
    """The pod of this name.

    Raises:
        MissingObjectError: there is none.
    """
    for pod in snapshot.pods:
        if (pod.namespace, pod.name) == (namespace, name):
            return pod
    names = (pod.name for pod in snapshot.pods if pod.namespace == namespace)
    elsewhere = sorted({pod.namespace for pod in snapshot.pods if pod.name == name})[:SHOWN]
    others = (
        f"; it is in namespace {', '.join(elsewhere)}" if elsewhere else similar_names(name, names)
    )
    raise MissingObjectError(f'pods "{name}" not found in namespace "{namespace}"{others}')


def cluster_of(
    snapshot: Snapshot, ledger: Ledger, *, policy: str = "", nodes: Candidates | None = None
) -> Cluster:
    """The cluster of a snapshot.

    Args:
        policy: name of a policy to use in place of the extender's; empty for none.
        nodes: the candidate nodes of the same snapshot, where they were computed before.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    found = nodes or candidates(snapshot, ledger)
    nominated = nominations_of(snapshot.pods, ledger.names)
    return Cluster(ledger, found, policy_of(snapshot, policy), nominated)


def explain(
    snapshot: Snapshot, pod: Pod, cluster: Cluster, schedulers: Schedulers | None = None
) -> Explanation:
    """Why a pod of the snapshot waits or where it sits.

    Args:
        cluster: of the same snapshot.
        schedulers: of the same snapshot, where they were read before.

    Raises:
        WireError: as :func:`cluster_of`.
    """
    known = schedulers or schedulers_of(snapshot, cluster.ledger.names)
    return complete(explain_pod(_facts(snapshot, pod, cluster.ledger, known), cluster))


def is_known(allocation: Allocation | None) -> bool:
    """The GPUs of an allocation are known."""
    if allocation is None:
        return False
    placement = allocation.placement
    return bool(placement.mem or placement.core or placement.group)


def _facts(snapshot: Snapshot, pod: Pod, ledger: Ledger, schedulers: Schedulers) -> PodFacts:
    pod_request, raw = pod_request_of(pod, ledger.names), snapshot.raw_by_uid[pod.uid]
    return PodFacts(
        pod=pod,
        pod_request=pod_request,
        constraints=pod_constraints(raw, ledger.names),
        scheduler_record=scheduler_record(
            raw, snapshot.events, complete=snapshot.was_read("Event")
        ),
        unseen=schedulers.keeps_waiting(pod.scheduler_name),
        members=_members(snapshot.pods, pod, pod_request, ledger),
    )


def _members(
    pods: Iterable[Pod], pod: Pod, pod_request: PodRequest | None, ledger: Ledger
) -> Members | None:
    """The pods of its gang that exist; ``None`` where it has none."""
    gang = gang_of(pod)
    if gang is None:
        return None
    named = (gang.namespace, gang.name)
    same = [each for each in pods if (its := gang_of(each)) and (its.namespace, its.name) == named]
    members = [one for each in same if (one := member_of(each, ledger.names)) is not None]
    placed = [one.pod.uid for one in members if ledger.allocation(one.pod.uid) is not None]
    return members_of(Member(pod, pod_request), members, placed)
