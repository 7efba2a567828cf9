"""What can be measured from outside; every name of a metric is here."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from prometheus_client import Counter, Gauge, Histogram

from gpucore.node.devices import Resource

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)

CALLS = Histogram(
    "gpushare_plugin_call_seconds", "Time to answer kubelet", ["call", "resource"], buckets=_BUCKETS
)
ALLOCATIONS = Counter(
    "gpushare_plugin_allocations_total",
    "Containers that were given devices; known: the pod was expected",
    ["resource", "known"],
)
REFUSALS = Counter(
    "gpushare_plugin_refusals_total", "Requests that were refused", ["resource", "code"]
)
CORRECTIONS = Counter(
    "gpushare_plugin_corrections_total", "Pods whose annotations were made true", ["reason"]
)
DISAGREEMENTS = Gauge(
    "gpushare_plugin_disagreements", "Pods whose annotations and devices differ right now"
)
DEVICES = Gauge("gpushare_plugin_devices", "Devices offered to kubelet", ["resource"])
CARD_HEALTHY = Gauge("gpushare_card_healthy", "1 while the card is offered", ["gpu", "uuid"])
CARD_UNITS = Gauge("gpushare_card_units", "Units of memory of the card", ["gpu", "uuid"])
CARD_GRANTED = Gauge(
    "gpushare_card_granted_units", "Units of memory handed out on the card", ["gpu", "uuid"]
)
CARD_USED = Gauge("gpushare_card_used_bytes", "Bytes in use on the card", ["gpu", "uuid"])
POD_GRANTED = Gauge(
    "gpushare_pod_granted_units",
    "Units of memory the pod was given",
    ["gpu", "exported_namespace", "exported_pod"],
)
POD_USED = Gauge(
    "gpushare_pod_used_bytes",
    "Bytes the pod's processes use",
    ["gpu", "exported_namespace", "exported_pod"],
)
UNATTRIBUTED = Gauge(
    "gpushare_card_unattributed_bytes", "Bytes of processes of no known pod", ["gpu", "uuid"]
)
POD_OVER = Gauge(
    "gpushare_pod_over_bytes",
    "Bytes the pod uses beyond what it was given; absent while there are none",
    ["gpu", "exported_namespace", "exported_pod"],
)
LIMIT_OVERRIDDEN = Gauge(
    "gpushare_pod_limit_overridden",
    "1 while the pod runs without the limit of its share: its environment replaces the limit, or a "
    "process of it uses a GPU past the MPS daemon",
    ["exported_namespace", "exported_pod", "by"],
)
OVERUSES = Counter(
    "gpushare_plugin_overuses_total", "Pods that were told that they use more than their share"
)
MPS_SERVING = Gauge(
    "gpushare_mps_serving", "1 while new pods may rely on the card's MPS daemon", ["uuid"]
)
MPS_FAILURES = Counter(
    "gpushare_mps_failures_total", "Times the card's MPS daemon ended or hung", ["uuid"]
)
XIDS = Counter("gpushare_card_xid_total", "Error events of the card", ["gpu", "xid"])
RELISTS = Counter("gpushare_plugin_relists_total", "Full lists of a watched collection", ["kind"])
REGISTRATIONS = Counter(
    "gpushare_plugin_registrations_total", "Registrations with kubelet", ["resource", "outcome"]
)


def forget_daemon(uuid: str) -> None:
    """The card has no MPS daemon any more."""
    with suppress(KeyError):
        MPS_SERVING.remove(uuid)


@contextmanager
def timed(call: str, resource: Resource) -> Iterator[None]:
    """Measure one answer to kubelet."""
    start = time.perf_counter()
    try:
        yield
    finally:
        CALLS.labels(call, resource).observe(time.perf_counter() - start)
