"""The pods of a workload, found from the pods themselves, so that no right on workloads is needed.

A Deployment's pods are owned by a ReplicaSet, which is named after it and the label
``pod-template-hash``; a CronJob's by a Job, which is named after it and the time in minutes.
"""

import re
from collections.abc import Iterable
from itertools import groupby

import msgspec

from gpucore.explain.pod_states import PodState
from gpucore.wire.pod.controllers import controller_of, workload_of
from gpucore.wire.pod.scheduler_events import PodEvent
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import MissingObjectError
from gpuinspect.queries.scheduling_status import SchedulingStatus


class WorkloadRef(msgspec.Struct, frozen=True):
    """A workload; ``kind`` as in its manifest."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def word(self) -> str:
        """Its kind on the command line."""
        return self.kind.lower()


def uids_of(snapshot: Snapshot, ref: WorkloadRef) -> frozenset[str]:
    """UIDs of the pods of a workload.

    Raises:
        MissingObjectError: no pod of it exists, and no event has the reason.
    """
    found = frozenset(
        pod.uid
        for pod, raw in snapshot.raw_pods()
        if pod.namespace == ref.namespace and _owned(pod, raw, ref)
    )
    if not found and not refused_pods(snapshot, ref):
        raise MissingObjectError(
            f'no pod of {ref.word} "{ref.name}" found in namespace "{ref.namespace}":'
            f" compare 'kubectl get {ref.word} -n {ref.namespace}'"
        )
    return found


def _owned(pod: Pod, raw: msgspec.Raw, ref: WorkloadRef) -> bool:
    owner = controller_of(raw)
    if owner is None:
        return False
    if ref.kind == "Deployment":
        return workload_of(pod, owner) == (ref.kind, ref.name)
    if ref.kind == "CronJob":
        return owner.kind == "Job" and re.fullmatch(_timed(ref.name), owner.name) is not None
    return owner.kind == ref.kind and owner.name == ref.name


def _timed(name: str) -> str:
    return rf"{re.escape(name)}-\d+"


def refused_pods(snapshot: Snapshot, ref: WorkloadRef) -> str:
    """Why the controller could not create a pod, by its last event; empty without one."""
    events = (msgspec.json.decode(raw, type=PodEvent) for raw in snapshot.all("Event"))
    found = [e for e in events if e.reason == "FailedCreate" and _about(e, ref)]
    found.sort(key=lambda event: event.when)
    return found[-1].message if found else ""


def _about(event: PodEvent, ref: WorkloadRef) -> bool:
    about, name = event.involved_object, re.escape(ref.name)
    patterns = {"Deployment": rf"{name}-[a-z0-9]{{1,10}}", "CronJob": _timed(ref.name)}
    pattern = patterns.get(ref.kind, name)
    return about.namespace == ref.namespace and re.fullmatch(pattern, about.name) is not None


class Alike(msgspec.Struct, frozen=True):
    """Pods of a workload in one state for one reason; ``reason`` is empty for pods with GPUs."""

    state: PodState
    reason: str
    pods: tuple[SchedulingStatus, ...]


def alike(statuses: Iterable[SchedulingStatus]) -> tuple[Alike, ...]:
    """Those that wait first, most pods first."""
    ordered = sorted(statuses, key=lambda each: (*_kind(each), each.pod.name))
    groups = [
        Alike(PodState(state), reason, tuple(members))
        for (state, reason), members in groupby(ordered, _kind)
    ]
    return tuple(sorted(groups, key=lambda g: (not g.pods[0].waits, -len(g.pods), g.reason)))


def _kind(status: SchedulingStatus) -> tuple[str, str]:
    return (status.state.value, status.reason if status.waits else "")
