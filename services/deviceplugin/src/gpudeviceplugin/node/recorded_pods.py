"""What was recorded of each running pod, for Prometheus.

A scrape sees the memory in use of one moment. These figures have the peak of all samples of a pod
and its starts, so that nothing between two scrapes is missing from the history in Prometheus. The
number of series is bounded by the pods of the node.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import Gauge

from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin import telemetry


class LastSample(NamedTuple):
    """What the last round measured of a pod.

    Attributes:
        sm_percent: SM utilization; ``None`` unknown.
    """

    pod: PodUid
    used_bytes: int
    sm_percent: int | None


class RecordedPods:
    """One history for each pod that is recorded; a restarted plugin begins anew."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, tuple[str, UsageHistory]] = {}

    def of(self, pod: Pod, key: WorkloadKey) -> UsageHistory:
        """The history of a pod, as of its workload; a new one where there is none."""
        name, found = self._pods.get(pod.uid, ("", None))
        if found is None or found.key != key:
            name, found = pod.name, UsageHistory(key)
            self._pods[pod.uid] = (name, found)
        return found

    def keep(self, pods: Collection[PodUid]) -> None:
        """Forget all other pods."""
        self._pods = {uid: each for uid, each in self._pods.items() if uid in pods}

    def publish(self, last: Iterable[LastSample]) -> None:
        """Replace the series.

        Args:
            last: of the pods that the last round measured.
        """
        telemetry.forget_recorded()
        samples = {each.pod: each for each in last}
        for uid, (name, history) in self._pods.items():
            labels = _labels(name, history.key)
            if uid in samples:
                _publish_sample(labels, samples[uid])
            for gauge, kind, value in _figures(history):
                if value:
                    gauge.labels(*labels, kind).set(value)


def _publish_sample(labels: Sequence[str], sample: LastSample) -> None:
    telemetry.RECORDED_USED.labels(*labels).set(sample.used_bytes)
    if sample.sm_percent is not None:
        telemetry.RECORDED_SM.labels(*labels).set(sample.sm_percent)


def _labels(pod: str, key: WorkloadKey) -> tuple[str, ...]:
    return (key.namespace, pod, key.kind, key.name, key.container)


def _figures(history: UsageHistory) -> Iterator[tuple[Gauge, str, float]]:
    """Metric, kind and value of each figure; those that are zero have no series."""
    amounts, numbers = telemetry.RECORDED_BYTES, telemetry.RECORDED_COUNT
    yield amounts, "peak", history.peak_bytes
    yield amounts, "start_peak", history.start_peak_bytes
    yield amounts, "requested", history.requested_bytes
    yield amounts, "limit", history.limit_bytes
    yield amounts, "ran_out", history.ran_out.limit_bytes
    yield amounts, "reached", history.reached.limit_bytes
    yield numbers, "gpus", history.gpus
    yield numbers, "claims", history.claims
    yield numbers, "starts", history.starts
    yield numbers, "out_of_memory", history.out_of_memory
    yield telemetry.RECORDED_AT, "ran_out", history.ran_out.at
    yield telemetry.RECORDED_AT, "reached", history.reached.at
