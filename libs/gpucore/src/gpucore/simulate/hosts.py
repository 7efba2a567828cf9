"""Nodes of a replay with CPU and memory, and the mix of the trace's pods."""

from collections import Counter
from collections.abc import Iterable

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.units import MILLI, NodeName, PodUid
from gpucore.workload.pod_mix import HostRoom, PodMix, usual_mix


def mix_of(pods: Iterable[TracePod]) -> PodMix:
    """The usual kinds of the pods with GPUs, by how often they come."""
    counts = Counter(pod.kind() for pod in pods if pod.gpus)
    return usual_mix({kind: float(count) for kind, count in counts.items()})


class Host:
    """One node of a replay.

    Attributes:
        node_info: state of its GPUs, in thousandths.
        cpu_milli, memory_mib: what is left.
        version: grows with every pod taken.
    """

    def __init__(self, node: TraceNode, mix: PodMix) -> None:
        self.node_info = NodeInfo(NodeName(node.name), node.shape())
        self._mix = mix
        self.model = node.model
        self.cpu_milli = node.cpu_milli
        self.memory_mib = node.memory_mib
        self.version = 0
        self._changed()

    def _changed(self) -> None:
        room = HostRoom(self._mix, self.model, MILLI, self.cpu_milli, self.memory_mib)
        self.node_info.host = room

    def runs(self, pod: TracePod) -> bool:
        """CPU, memory and model suit ``pod``, whatever its GPUs are like."""
        return (
            pod.cpu_milli <= self.cpu_milli
            and pod.memory_mib <= self.memory_mib
            and (not pod.models or self.model in pod.models)
        )

    def take(self, pod: TracePod, placement: Placement) -> PodUid:
        """Give ``pod`` its CPU, memory and GPUs; the UID under which it holds them."""
        self.version += 1
        self.cpu_milli -= pod.cpu_milli
        self.memory_mib -= pod.memory_mib
        uid = PodUid(f"{self.node_info.name}/{self.version}")
        if pod.gpus:
            self.node_info.put(Allocation(uid, "", pod.name, AllocationState.ASSUMED, placement))
        self._changed()
        return uid

    def release(self, pod: TracePod, uid: PodUid) -> None:
        """The pod ended: its CPU, memory and GPUs are free."""
        self.version += 1
        self.cpu_milli += pod.cpu_milli
        self.memory_mib += pod.memory_mib
        self.node_info.drop(uid)
        self._changed()
