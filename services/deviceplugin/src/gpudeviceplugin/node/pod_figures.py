"""Metrics of pods on GPUs: each round replaces them at once.

Prometheus takes a series that one scrape lacks for ended. A round waits for the driver, so its
figures are collected first, and no scrape finds a part of them.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from prometheus_client import Gauge

from gpucore.model import Gpu
from gpudeviceplugin import telemetry

_MEASURED: Final = (telemetry.POD_USED, telemetry.POD_OVER, telemetry.POD_SM_PERCENT)
_ALL: Final = (telemetry.POD_ALLOCATED, telemetry.POD_ALLOCATED_GPUS, *_MEASURED)


class _Sample(NamedTuple):
    gauge: Gauge
    gpu: str
    namespace: str
    pod: str
    value: float


class PodFigures:
    """The figures of the last round, and those that the current round has so far, by UUID."""

    def __init__(self) -> None:
        self._last: dict[str, list[_Sample]] = {}
        self._next: dict[str, list[_Sample]] = {}

    def begin(self) -> None:
        """A round begins; one that did not end is forgotten."""
        self._next = {}

    def add(self, gauge: Gauge, gpu: Gpu, pod: tuple[str, str], value: float) -> None:
        """A figure of a pod, which is given by namespace and name."""
        self._next.setdefault(gpu.uuid, []).append(_Sample(gauge, str(gpu.index), *pod, value))

    def keep(self, gpu: Gpu, pods: Collection[tuple[str, str]]) -> None:
        """The GPU does not answer: what was measured of these pods last stays."""
        for each in self._last.get(gpu.uuid, ()):
            if each.gauge in _MEASURED and (each.namespace, each.pod) in pods:
                self._next.setdefault(gpu.uuid, []).append(each)

    def publish(self) -> None:
        """Replace the series by the figures of the round that ends."""
        self._last = self._next
        for gauge in _ALL:
            gauge.clear()
        for samples in self._last.values():
            for gauge, *labels, value in samples:
                gauge.labels(*labels).set(value)
