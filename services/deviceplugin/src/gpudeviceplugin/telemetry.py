"""Metrics of the plugin; all metric names are defined here."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

# They would be a series more for each counter and histogram.
disable_created_metrics()  # type: ignore[no-untyped-call]

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)

CALLS = Histogram(
    "gpushare_plugin_call_seconds",
    "Duration of kubelet's calls in seconds",
    ["call", "resource"],
    buckets=_BUCKETS,
)
ALLOCATIONS = Counter(
    "gpushare_plugin_allocations_total",
    "Allocate calls that succeeded; known: the pod was matched",
    ["resource", "known"],
)
CLAIMS = Gauge("gpushare_plugin_claims", "ResourceClaims that are prepared on the node")
CLAIM_FAILURES = Counter(
    "gpushare_plugin_claim_failures_total",
    "Calls of kubelet for a ResourceClaim that were answered with an error",
    ["step"],
)
REFUSALS = Counter(
    "gpushare_plugin_refusals_total",
    "Calls of kubelet (allocations, starts of containers) that were refused",
    ["resource", "code"],
)
CORRECTIONS = Counter(
    "gpushare_plugin_corrections_total",
    "Pods whose annotations were corrected to kubelet's allocation",
    ["reason"],
)
DISAGREEMENTS = Gauge(
    "gpushare_plugin_disagreements", "Pods whose annotations differ from kubelet's allocation"
)
DEVICES = Gauge("gpushare_plugin_devices", "Devices advertised to kubelet", ["resource"])
GPU_HEALTHY = Gauge(
    "gpushare_gpu_healthy", "1 if the GPU is healthy and offered to kubelet", ["gpu", "uuid"]
)
UNRESPONSIVE = Gauge(
    "gpushare_plugin_unresponsive_gpus",
    "GPUs of the node that have not responded to the driver since the plugin started; they have no "
    "other metrics",
)
DRIVER_GPUS = Gauge(
    "gpushare_plugin_driver_gpus",
    "GPUs that the driver lists, those that do not respond included; 0 until it has listed them",
)
GPU_UNITS = Gauge("gpushare_gpu_units", "GPU memory units of the GPU", ["gpu", "uuid"])
GPU_ALLOCATED = Gauge(
    "gpushare_gpu_allocated_units", "GPU memory units allocated on the GPU", ["gpu", "uuid"]
)
GPU_MEMORY = Gauge("gpushare_gpu_memory_bytes", "GPU memory in bytes", ["gpu", "uuid"])
GPU_USED = Gauge("gpushare_gpu_used_bytes", "GPU memory in use, in bytes", ["gpu", "uuid"])
POD_ALLOCATED = Gauge(
    "gpushare_pod_allocated_units",
    "GPU memory units allocated to the pod",
    ["gpu", "exported_namespace", "exported_pod"],
)
POD_ALLOCATED_GPUS = Gauge(
    "gpushare_pod_allocated_gpus",
    "Part of the GPU that is allocated to the pod: of its memory units, 1 for an exclusive GPU",
    ["gpu", "exported_namespace", "exported_pod"],
)
POD_USED = Gauge(
    "gpushare_pod_used_bytes",
    "GPU memory in bytes used by the pod: by its cgroup where the driver limits memory, otherwise "
    "the sum of its processes; absent where it is unknown",
    ["gpu", "exported_namespace", "exported_pod"],
)
UNATTRIBUTED = Gauge(
    "gpushare_gpu_unattributed_bytes",
    "GPU memory in bytes used by processes of no known pod",
    ["gpu", "uuid"],
)
POD_OVER = Gauge(
    "gpushare_pod_over_bytes",
    "GPU memory in bytes used beyond the pod's share; absent if zero",
    ["gpu", "exported_namespace", "exported_pod"],
)
POD_SM_PERCENT = Gauge(
    "gpushare_pod_sm_utilization_percent",
    "SM utilization of the GPU by the pod's processes, as sampled last; absent where the driver "
    "does not report it, or reports work of processes of no pod that holds the GPU",
    ["gpu", "exported_namespace", "exported_pod"],
)
LIMIT_OVERRIDDEN = Gauge(
    "gpushare_pod_limit_overridden",
    "1 while the pod runs without the limit of its share: its environment replaces the limit, or a "
    "process of it uses a GPU without the MPS daemon",
    ["exported_namespace", "exported_pod", "by"],
)
LIMIT_IN_FORCE = Gauge(
    "gpushare_pod_limit_in_force",
    "1 if the driver's memory limit of the pod's share is in force, in isolation mode driver",
    ["gpu", "exported_namespace", "exported_pod"],
)
LIMIT_BYTES = Gauge(
    "gpushare_pod_limit_bytes",
    "GPU memory that the driver lets the pod allocate, as read from it, in isolation mode driver",
    ["gpu", "exported_namespace", "exported_pod"],
)
_RECORDED = (
    "exported_namespace",
    "exported_pod",
    "workload_kind",
    "workload",
    "workload_container",
)
RECORDED_USED = Gauge(
    "gpushare_recorded_used_bytes",
    "GPU memory of the pod in the last sample of the usage recorder; with several GPUs, as if all "
    "were as full as the fullest",
    _RECORDED,
)
RECORDED_SM = Gauge(
    "gpushare_recorded_sm_utilization_percent",
    "SM utilization of the GPU by the pod in the last sample of the usage recorder; with several "
    "GPUs that of the busiest, and absent where it is not known of all",
    _RECORDED,
)
RECORDED_BYTES = Gauge(
    "gpushare_recorded_bytes",
    "GPU memory that the usage recorder has of the pod: its peak, its peak within two minutes of a "
    "start, its request and limit, and the limit that it reached or that was not enough",
    [*_RECORDED, "kind"],
)
RECORDED_COUNT = Gauge(
    "gpushare_recorded_count",
    "Numbers that the usage recorder has of the pod: GPUs, 1 if its memory is claimed, starts, and "
    "ends for want of GPU memory",
    [*_RECORDED, "kind"],
)
RECORDED_AT = Gauge(
    "gpushare_recorded_timestamp_seconds",
    "Unix time at which the pod last reached its limit, or ran out of GPU memory",
    [*_RECORDED, "kind"],
)
OVERUSES = Counter(
    "gpushare_plugin_overuses_total", "Events on pods that use more memory than their share"
)
MPS_SERVING = Gauge("gpushare_mps_serving", "1 if the GPU's MPS daemon serves new pods", ["uuid"])
MPS_FAILURES = Counter(
    "gpushare_mps_failures_total", "Failures of the GPU's MPS daemon (exited or hung)", ["uuid"]
)
VERIFIED = Gauge(
    "gpushare_verify_row",
    "Last result of gpushare verify --record: 1 if the row held or is known not to, 0 if it failed",
    ["gpu", "row"],
)
VERIFIED_AT = Gauge(
    "gpushare_verify_timestamp_seconds",
    "Unix time of the last run of gpushare verify --record on the node; 0 before the first",
)
XIDS = Counter("gpushare_gpu_xid_total", "XID error events of the GPU", ["gpu", "xid"])
RELISTS = Counter(
    "gpushare_plugin_relists_total", "Complete lists of a watched collection", ["kind"]
)
REGISTRATIONS = Counter(
    "gpushare_plugin_registrations_total",
    "Registrations with kubelet, by outcome",
    ["resource", "outcome"],
)


_OF_GPUS = (GPU_HEALTHY, GPU_UNITS, GPU_ALLOCATED, GPU_MEMORY, GPU_USED, UNATTRIBUTED)


def forget_gpus(gone: Iterable[tuple[str, str]]) -> None:
    """Remove the series of GPUs that left the node, each given by index and UUID."""
    for labels in gone:
        for gauge in _OF_GPUS:
            with suppress(KeyError):
                gauge.remove(*labels)


def forget_recorded() -> None:
    """Remove the series of the usage recorder, before they are written anew."""
    for gauge in (RECORDED_USED, RECORDED_SM, RECORDED_BYTES, RECORDED_COUNT, RECORDED_AT):
        gauge.clear()


def forget_daemon(uuid: str) -> None:
    """The GPU has no MPS daemon any more."""
    with suppress(KeyError):
        MPS_SERVING.remove(uuid)


@contextmanager
def timed(call: str, resource: str) -> Iterator[None]:
    """Measure one answer to kubelet."""
    start = time.perf_counter()
    try:
        yield
    finally:
        CALLS.labels(call, resource).observe(time.perf_counter() - start)
