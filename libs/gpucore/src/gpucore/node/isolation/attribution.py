"""Attribution of a host process to a pod, by the pod UID in its control group.

Both drivers of kubelet are read, ``.../kubepods/burstable/pod<uid>/<id>`` and systemd's
``kubepods-burstable-pod<uid>.slice`` with underscores, in both versions of control groups.

Whose work ran on the engines of a GPU follows from the utilization that the driver reports of
processes. It lists those with work since it was asked last. That the others had none is certain
only if each listed process belongs to a pod that holds the GPU: work of MPS clients can be listed
as that of their server.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpucore.units import PodUid

_POD: Final = re.compile(
    r"pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?=[./]|$)",
    re.MULTILINE,
)


def pod_of(cgroup: str) -> PodUid | None:
    """The pod that ``/proc/<pid>/cgroup`` names, or ``None`` for a process of no pod."""
    found = _POD.search(cgroup)
    return PodUid(found[1].replace("_", "-")) if found else None


class Attribution(msgspec.Struct, frozen=True):
    """Bytes of one GPU by pod, and those of processes of no known pod."""

    pods: Mapping[PodUid, int]
    unattributed: int


def owners(cgroups: Mapping[int, str]) -> dict[int, PodUid]:
    """The pod of each process (by pid) that belongs to one, by its control group."""
    found = {pid: pod_of(cgroup) for pid, cgroup in cgroups.items()}
    return {pid: uid for pid, uid in found.items() if uid is not None}


def attribute(
    used: Mapping[int, int], cgroups: Mapping[int, str], *, unlisted: int = 0
) -> Attribution:
    """Sum up bytes per process (by pid) with the control group of each (missing: it has ended).

    Args:
        unlisted: bytes in use by processes that the driver does not name.
    """
    owned = owners(cgroups)
    pods: dict[PodUid, int] = {}
    unattributed = unlisted
    for pid, size in used.items():
        uid = owned.get(pid)
        if uid is None:
            unattributed += size
        else:
            pods[uid] = pods.get(uid, 0) + size
    return Attribution(pods, unattributed)


def corrected(found: Attribution, exact: Mapping[PodUid, int]) -> Attribution:
    """Figures of processes, with the driver's own figure of each pod that it accounts for.

    Unattributed processes of such a pod are then attributed to it.
    """
    known = sum(size for uid, size in exact.items() if uid not in found.pods)
    return Attribution({**found.pods, **exact}, max(found.unattributed - known, 0))


def with_sole_pod(
    found: Attribution, holders: Collection[PodUid], *, processes_seen: bool
) -> Attribution:
    """Where no process can be seen, memory in use of a GPU with one pod counts as that pod's.

    Args:
        holders: the pods that hold the GPU or a part of it.
        processes_seen: the control group of some process on the GPU was read; then what is left is
            of a process outside of pods.
    """
    if processes_seen or found.pods or len(holders) != 1:
        return found
    (only,) = holders
    return Attribution({only: found.unattributed}, 0) if found.unattributed else found


class EngineUse(msgspec.Struct, frozen=True):
    """One GPU since the last measurement.

    Attributes:
        pods: SM utilization in percent of the pods with work; 0 for work of other engines only.
        idle: the pods that had none for certain.
    """

    pods: Mapping[PodUid, int]
    idle: Collection[PodUid] = ()

    def of(self, uid: PodUid) -> int | None:
        """SM utilization of a pod in percent; ``None`` unknown."""
        return self.pods.get(uid, 0 if uid in self.idle else None)


UNKNOWN: Final = EngineUse({})


def engine_use(
    percents: Mapping[int, int] | None,
    cgroups: Mapping[int, str],
    holders: Collection[PodUid],
    listed: Collection[PodUid],
) -> EngineUse:
    """The work of pods on a GPU.

    Args:
        percents: SM utilization in percent of the processes with work, by process ID; ``None``
            where the driver does not report it.
        cgroups: control group by process ID.
        holders: the pods that hold the GPU or a part of it.
        listed: those whose processes the driver lists.
    """
    if percents is None:
        return UNKNOWN
    owned = owners(cgroups)
    pods: dict[PodUid, int] = {}
    for pid, percent in percents.items():
        if (uid := owned.get(pid)) in holders and uid is not None:
            pods[uid] = min(pods.get(uid, 0) + percent, 100)
    certain = all(owned.get(pid) in holders for pid in percents)
    return EngineUse(pods, {uid for uid in listed if uid not in pods} if certain else ())
