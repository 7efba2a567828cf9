"""The pods of a cluster placed anew, largest first, and what that leaves for pods that wait.

A figure of what sizes are worth, not a plan: pods are not moved by anything here, and a scheduler
that gets them in another order may need more GPUs.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Placement
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
from gpucore.steps import complete
from gpucore.units import GpuIndex, NodeName


class Repacked(msgspec.Struct, frozen=True):
    """The cluster with its pods placed anew.

    Attributes:
        gpus: in use by the pods that were there, before those that wait were placed.
        placements: of every pod with a place, by name.
        unplaced: pods that were there and found no place.
        fitting: pods that waited and found one.
    """

    gpus: int
    placements: Mapping[str, Placement]
    unplaced: tuple[str, ...] = ()
    fitting: tuple[str, ...] = ()


def repack(
    cluster: Candidates,
    running: Sequence[WhatIfPod],
    waiting: Sequence[WhatIfPod],
    policy: ClusterPolicy,
) -> Repacked:
    """Place ``running`` from the largest to the smallest, then ``waiting`` in order.

    Args:
        cluster: the nodes without ``running``; it is not changed.
        running: pods that have a place now; names differ.
        policy: what holds where neither pod nor node names a policy.
    """
    simulated = SimulatedCluster.of(cluster, policy)
    placed = _placed(simulated, sorted(running, key=_largest_first))
    gpus = gpus_in_use(simulated.node_infos.values())
    added = _placed(simulated, waiting)
    return Repacked(
        gpus=gpus,
        placements={**placed, **added},
        unplaced=tuple(each.name for each in running if each.name not in placed),
        fitting=tuple(added),
    )


def gpus_in_use(node_infos: Iterable[NodeInfo]) -> int:
    """Number of GPUs of which anything is allocated; those that are gone do not count."""
    devices = chain.from_iterable(info.devices.values() for info in node_infos)
    return sum(bool(device.gpu and device.holders) for device in devices)


def overcommitted(
    cluster: Candidates, placements: Mapping[str, Placement], extra: Mapping[str, int]
) -> int:
    """Number of GPUs whose pods could use more memory together than the GPU has.

    Args:
        placements: of the pods, by name.
        extra: units that a pod may use beyond its request, by name.
    """
    used: dict[tuple[NodeName, GpuIndex], int] = {}
    for name, placement in placements.items():
        for index, units in placement.mem.items():
            key = placement.node, index
            more = -(-extra.get(name, 0) // max(len(placement.mem), 1))
            used[key] = used.get(key, 0) + units + more
    return sum(
        units > cluster.node_infos[node].devices[index].total
        for (node, index), units in used.items()
    )


def _placed(simulated: SimulatedCluster, pods: Iterable[WhatIfPod]) -> dict[str, Placement]:
    found: dict[str, Placement] = {}
    refused: set[WhatIfPod] = set()
    for pod in pods:
        kind = msgspec.structs.replace(pod, name="")
        if kind in refused:
            continue
        placement = complete(simulated.granting(pod)).placement
        if placement is None:
            refused.add(kind)
        else:
            found[pod.name] = placement
    return found


def _largest_first(pod: WhatIfPod) -> tuple[int, int, int, str]:
    request = pod.pod_request
    share = request.mem // max(request.gpu_count, 1)
    return (-request.gpus, -request.gpu_count, -share, pod.name)
