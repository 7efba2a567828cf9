"""Pods that the original plugin allocated, on a node that was migrated from it.

Its device ids meant nothing: kubelet picked any, and the GPU was that of the annotation. So for
these pods the annotation is the truth and kubelet's ids are not. They are known by what the
original wrote: assigned in the first generation of annotations, and not in the second, which our
plugin always writes with it. Ids that this plugin handed out are never believed to be inherited,
whatever annotations a pod came with.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from gpucore.model import GpuAmounts
from gpucore.node.allocation.device_ids import DeviceTable
from gpucore.node.allocation.holdings import Held
from gpucore.units import GpuIndex
from gpucore.wire.errors import WireError
from gpucore.wire.names import V2_ASSIGNED, Names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod


class Inherited(msgspec.Struct, frozen=True):
    """The inherited pods of a node.

    Attributes:
        gpus: units on each GPU, by namespace and name.
        displaced: units of memory that a GPU lacks although kubelet counts their ids elsewhere.
        withheld: units of memory that kubelet counts as theirs on a GPU, beyond what they use of
            it; a pod that is placed on these would be refused.
    """

    gpus: Mapping[tuple[str, str], GpuAmounts] = {}
    displaced: Counter[GpuIndex] = msgspec.field(default_factory=Counter)
    withheld: Counter[GpuIndex] = msgspec.field(default_factory=Counter)

    @property
    def pods(self) -> frozenset[tuple[str, str]]:
        """Their namespaces and names."""
        return frozenset(self.gpus)


def inherited(
    held: Iterable[Held],
    pods: Iterable[Pod],
    names: Names,
    *,
    table: DeviceTable,
    granted: Collection[str],
) -> Inherited:
    """Which of ``pods`` the original plugin placed, by kubelet's allocations.

    Args:
        table: of the GPUs' memory.
        granted: ids that this plugin has handed out.
    """
    given = {(each.namespace, each.name): each.memory_ids for each in held}
    found: dict[tuple[str, str], GpuAmounts] = {}
    missing: Counter[GpuIndex] = Counter()
    for pod in pods:
        key = (pod.namespace, pod.name)
        ids = given.get(key, frozenset())
        gpus = _by_the_original(pod, names) if ids else {}
        if gpus and not ids.intersection(granted):
            found[key] = gpus
            missing.update(gpus)
            missing.subtract(table.per_device(ids))
    return Inherited(found, +missing, -missing)


def _by_the_original(pod: Pod, names: Names) -> dict[GpuIndex, int]:
    """Units on each GPU where the original handed them out; empty where it did not."""
    pod_annotations = pod.annotations
    if (
        pod_annotations.get(names.mem_assigned) != "true"
        or pod_annotations.get(V2_ASSIGNED) == "true"
    ):
        return {}
    try:
        allocation = allocation_of(pod, names)
    except WireError:
        return {}
    return dict(allocation.placement.mem) if allocation else {}
