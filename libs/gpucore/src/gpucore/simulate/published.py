"""Fragmentation gradient descent as it was published, to compare with; no policy of the product.

The formulas of the program behind "Beware of Fragmentation" (USENIX ATC 2023): the mix is the most
frequent kinds of pods, those without GPUs included, that make 95 % of all. A node's fragmentation
counts CPU and GPU model, and not host memory. The score of a placement is 100 times the logistic
function of the fall of fragmentation in GPUs, cut to a whole number. Its scheduler chooses the
first of equal nodes.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from math import exp
from typing import Final

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Placement, PodRequest
from gpucore.scheduling.device_fit import per_device
from gpucore.scheduling.fragmentation import growth
from gpucore.scheduling.policy import Policy
from gpucore.simulate.traces import TracePod
from gpucore.workload.kinds import Kind, Workload

COVERED: Final = 0.95
"""Part of the pods that the mix covers."""
SCORES: Final = 100.0
_Shape = tuple[int, int, int, tuple[str, ...]]
"""CPU, thousandths of each GPU, number of GPUs and models."""


class PublishedMix:
    """The mix as the published program counts it."""

    def __init__(self, pods: Iterable[TracePod]) -> None:
        counts: Counter[_Shape] = Counter(
            (pod.cpu_milli, pod.gpu_milli, pod.gpus, tuple(sorted(pod.models))) for pod in pods
        )
        wanted = COVERED * counts.total()
        self._kinds: list[tuple[_Shape, int]] = []
        covered = 0
        for shape, count in sorted(counts.items(), key=lambda item: item[::-1], reverse=True):
            if covered >= wanted:
                break
            self._kinds.append((shape, count))
            covered += count
        self._cpus = sorted({cpu for (cpu, *_), _ in self._kinds})
        self._known: dict[tuple[str, int], Workload] = {}

    def on(self, model: str, cpu_milli: int) -> Workload:
        """The mix for a node with this CPU left; equal views are one object."""
        key = model, bisect_right(self._cpus, cpu_milli)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._view(model, cpu_milli)
        return known

    def _view(self, model: str, cpu_milli: int) -> Workload:
        kinds: list[Kind] = []
        rest = 0.0
        for (cpu, milli, gpus, models), count in self._kinds:
            if gpus and cpu <= cpu_milli and (not models or model in models):
                kinds.append(Kind(float(count), milli, gpus))
            else:
                rest += count
        return Workload(kinds, unresolvable=rest)


def published_policy(mix: PublishedMix) -> Policy:
    """The published choice of GPUs and nodes."""

    def score(node_info: NodeInfo, pod_request: PodRequest, placement: Placement) -> float:
        host = node_info.host
        model, cpu = (host.model, host.cpu_milli) if host is not None else ("", 0)
        before, after = mix.on(model, cpu), mix.on(model, cpu - pod_request.cpu_milli)
        grown = growth(node_info, placement, before, after)
        return float(int(SCORES / (1.0 + exp(round(grown, 9)))))

    def key(node_info: NodeInfo, device: DeviceInfo, pod_request: PodRequest) -> tuple[float, ...]:
        mem, _ = per_device(pod_request)
        placement = Placement(node_info.name, {device.index: mem})
        return (-score(node_info, pod_request, placement),)

    def rate(
        node_info: NodeInfo, pod_request: PodRequest, placement: Placement
    ) -> tuple[float, ...]:
        return (score(node_info, pod_request, placement) / SCORES,)

    return Policy("published", key, rate, costly=True)
