"""Nodes of a replay with CPU and memory, and the usual requests that still fit them.

Free GPUs on a host without free CPU are as unusable as a quarter of a GPU that no request matches:
the fragmentation of a host counts both.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.scheduling.fragmentation import Kind, Workload
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.units import NodeName, PodUid


class HostWorkload:
    """The pods that usually come, answered for hosts by model and by CPU and memory left."""

    def __init__(self, pods: Iterable[TracePod]) -> None:
        named = Counter(
            (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models)
            for pod in pods
            if pod.gpus
        )
        self._counts = named
        self._cpus = sorted({cpu for cpu, *_ in named})
        self._memories = sorted({memory for _, memory, *_ in named})
        self._known: dict[tuple[str, int, int], Workload] = {}

    def on(self, model: str, cpu_milli: int, memory_mib: int) -> Workload:
        """The work that fits a host of this model with this CPU and memory left."""
        cpu = bisect_right(self._cpus, cpu_milli)
        memory = bisect_right(self._memories, memory_mib)
        known = self._known.get((model, cpu, memory))
        if known is None:
            known = self._known[model, cpu, memory] = self._seen(model, cpu_milli, memory_mib)
        return known

    def _seen(self, model: str, cpu_milli: int, memory_mib: int) -> Workload:
        weights: Counter[tuple[int, int]] = Counter()
        unresolvable = 0
        for (cpu, memory, gpus, milli, models), count in self._counts.items():
            if cpu <= cpu_milli and memory <= memory_mib and (not models or model in models):
                weights[milli, gpus] += count
            else:
                unresolvable += count
        kinds = [Kind(float(n), milli, number) for (milli, number), n in sorted(weights.items())]
        return Workload(kinds, unresolvable=float(unresolvable))


class Host:
    """One node of a replay.

    Attributes:
        account: state of its GPUs, in thousandths.
        cpu_milli, memory_mib: what is left.
        version: grows with every pod taken.
    """

    def __init__(self, node: TraceNode) -> None:
        self.node_info = NodeInfo(NodeName(node.name), node.shape())
        self.model = node.model
        self.cpu_milli = node.cpu_milli
        self.memory_mib = node.memory_mib
        self.version = 0
        self.free = self._free()

    def _free(self) -> tuple[int, ...]:
        return tuple(gpu.free for gpu in self.node_info.devices.values())

    def runs(self, pod: TracePod) -> bool:
        """CPU, memory and model suit ``pod``, whatever its GPUs are like."""
        return (
            pod.cpu_milli <= self.cpu_milli
            and pod.memory_mib <= self.memory_mib
            and (not pod.models or self.model in pod.models)
        )

    def take(self, pod: TracePod, placement: Placement) -> None:
        """Give ``pod`` its CPU, memory and GPUs."""
        self.version += 1
        self.cpu_milli -= pod.cpu_milli
        self.memory_mib -= pod.memory_mib
        if not pod.gpus:
            return
        uid = PodUid(f"{self.node_info.name}/{self.version}")
        self.node_info.put(Allocation(uid, "", pod.name, AllocationState.ASSUMED, placement))
        self.free = self._free()
