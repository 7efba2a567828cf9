"""Whose work ran on the engines of a GPU, by the utilization that the driver reports of processes.

A driver lists the processes with work since it was asked last. That the others had none is certain
only if each listed process belongs to a pod that holds the GPU: work of MPS clients can be listed
as that of their server.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpucore.node.isolation.attribution import owners
from gpucore.units import PodUid


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
