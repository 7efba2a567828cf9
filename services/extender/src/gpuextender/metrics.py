"""Every metric of the extender, under one registry. Labels are bounded: they never name a pod.

Metrics of GPUs and allocations are read from the ledger at each scrape. A cluster of 5,000 nodes
with 8 GPUs has 120,000 of these series; writing all of them would delay a filter for about a
second. So the lines of a node are kept until it changes, and missing lines are written for a few
nodes at a time. All other metrics are counted as things happen.
"""

import asyncio
import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model import AllocationState, PodRequest
from gpucore.units import NodeName
from gpucore.wire.names import API_CLAIMS

# They would be a series more for each counter and histogram.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry(auto_describe=True)
GCCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
ProcessCollector(registry=REGISTRY)

_SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0015,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    1.0,
    5.0,
)

VERB_SECONDS: Final = Histogram(
    "gpushare_extender_verb_seconds",
    "Duration of scheduler requests in seconds, by endpoint.",
    ("verb",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
REFUSALS: Final = Counter(
    "gpushare_extender_refusals",
    "Nodes rejected by filter, by reason code.",
    ("code",),
    registry=REGISTRY,
)
BINDS: Final = Counter(
    "gpushare_extender_binds",
    "Binds by outcome.",
    ("outcome",),
    registry=REGISTRY,
)
BIND_WRITES: Final = Counter(
    "gpushare_extender_bind_writes",
    "Binding requests sent to the API server, including retries.",
    registry=REGISTRY,
)
EVENTS: Final = Counter(
    "gpushare_extender_events",
    "Events on pods, by outcome: written, aggregated into an earlier event, or dropped.",
    ("fate",),
    registry=REGISTRY,
)
CLAIM_TEMPLATES: Final = Counter(
    "gpushare_extender_claim_templates",
    "ResourceClaimTemplates of converted pods, by outcome: created, deleted, or limited.",
    ("outcome",),
    registry=REGISTRY,
)
REQUEUES: Final = Counter(
    "gpushare_extender_requeues",
    "Pending pods returned to the scheduler queue because a node has capacity, by outcome.",
    ("outcome",),
    registry=REGISTRY,
)
NOMINATIONS: Final = Counter(
    "gpushare_extender_nominations",
    "Nominations of pending pods to nodes, by outcome.",
    ("outcome",),
    registry=REGISTRY,
)
MIX_PODS: Final = Gauge(
    "gpushare_extender_mix_pods",
    "Pods from which the mix of usual pods was last learned.",
    registry=REGISTRY,
)
MIX_KINDS: Final = Gauge(
    "gpushare_extender_mix_kinds",
    "Kinds of pods in the mix that the fragmentation policy uses; 0: a fixed guess.",
    registry=REGISTRY,
)
MIX_CHANGES: Final = Counter(
    "gpushare_extender_mix_changes",
    "Times that the fragmentation policy began to use another mix of pods.",
    registry=REGISTRY,
)
ADMISSIONS: Final = Counter(
    "gpushare_extender_admissions",
    "Pods reviewed by the admission webhook, by result.",
    ("result",),
    registry=REGISTRY,
)
REVIEW_SECONDS: Final = Histogram(
    "gpushare_extender_review_seconds",
    "Duration of reviews by the admission webhook in seconds.",
    buckets=_SECONDS,
    registry=REGISTRY,
)
SIZING_READS: Final = Counter(
    "gpushare_extender_sizing_reads",
    "Reads of the device plugins' usage histories by the webhook, by result.",
    ("result",),
    registry=REGISTRY,
)
REFLECTOR_LISTS: Final = Counter(
    "gpushare_extender_reflector_lists",
    "Complete lists; more than one per collection: a watch was lost.",
    ("collection",),
    registry=REGISTRY,
)
REFLECTOR_FAILURES: Final = Counter(
    "gpushare_extender_reflector_failures",
    "Failed list and watch requests.",
    ("collection",),
    registry=REGISTRY,
)
REFLECTOR_AGE: Final = Gauge(
    "gpushare_extender_reflector_age_seconds",
    "Seconds since the last response of the API server.",
    ("collection",),
    registry=REGISTRY,
)
READY: Final = Gauge(
    "gpushare_extender_ready",
    "1 if the extender serves requests.",
    registry=REGISTRY,
)
CERTIFICATE_EXPIRY: Final = Gauge(
    "gpushare_extender_certificate_expiry_timestamp_seconds",
    "Expiry of the certificate in the directory, in Unix seconds.",
    ("folder",),
    registry=REGISTRY,
)
CLIENT_CERTIFICATE_EXPIRY: Final = Gauge(
    "gpushare_extender_client_certificate_expiry_timestamp_seconds",
    "Expiry of the certificate that a client last showed, in Unix seconds.",
    ("client",),
    registry=REGISTRY,
)


YIELD_EVERY: Final = 5


class LedgerMetrics:
    """GPUs, claims, trouble, and what waits.

    Args:
        waiting: the requests of pods that are not bound.
        nodes: the nodes as kube-scheduler's filters see them.
    """

    def __init__(
        self,
        ledger: Ledger,
        waiting: Callable[[], Iterable[PodRequest]],
        nodes: CandidateNodes,
    ) -> None:
        self._ledger, self._waiting, self._nodes = ledger, waiting, nodes
        self._lines: dict[NodeName, tuple[bool, bytes]] = {}

    def node_changed(self, node: NodeName) -> None:
        """The ledger entry of ``node`` changed."""
        self._lines.pop(node, None)

    async def render(self) -> bytes:
        """All gauges as text."""
        gpus, fresh = list[bytes](), 0
        for name in list(self._ledger.nodes()):
            accepts, node_info = self._accepts_pods(name), self._ledger.node(name)
            known, line = self._lines.get(name, (None, b""))
            if known is not accepts and node_info is not None:
                line = _samples(_gpu_units([node_info], accepts_pods=accepts))
                self._lines[name] = accepts, line
                fresh += 1
                if fresh % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            gpus.append(line)
        totals = self._totals(list(self._ledger.nodes().values()))
        return _text(_gpu_units([])) + b"".join(gpus) + _text(*totals)

    def _accepts_pods(self, name: NodeName) -> bool:
        """Whether the node takes new pods; where it is not listed, its GPUs alone decide."""
        node = self._nodes.version(name)
        return node is None or node.accepts_pods

    def _totals(self, node_infos: list[NodeInfo]) -> Iterator[Metric]:
        amounts = [pod_request.mem for pod_request in self._waiting()]
        yield _pending(node_infos)
        yield _overfull(node_infos)
        yield GaugeMetricFamily(
            "gpushare_extender_waiting_pods",
            "Unscheduled pods that request GPUs.",
            len(amounts),
        )
        yield GaugeMetricFamily(
            "gpushare_extender_waiting_units",
            "GPU memory units requested by unscheduled pods.",
            sum(amounts),
        )
        yield self._claims()

    def _claims(self) -> Metric:
        family = GaugeMetricFamily(
            "gpushare_extender_claims", "Allocations by state.", labels=("state",)
        )
        states = collections.Counter(each.state for each in self._ledger.allocations().values())
        for state in AllocationState:  # an absent series is no 0 for min_over_time
            family.add_metric((state.value,), states[state])
        return family


def _pending(node_infos: Iterable[NodeInfo]) -> Metric:
    family = GaugeMetricFamily(
        "gpushare_extender_pending_units",
        "GPU memory units allocated on unknown GPUs of the node; absent if zero.",
        labels=("node",),
    )
    for node_info in node_infos:
        if node_info.pending:
            family.add_metric((node_info.name,), node_info.pending)
    return family


def _overfull(node_infos: Iterable[NodeInfo]) -> Metric:
    """A GPU that its node lost is not over-full."""
    family = GaugeMetricFamily(
        "gpushare_extender_overfull_gpus",
        "1 for a GPU with more memory, compute or pods allocated than it may have; else absent.",
        labels=("node", "gpu"),
    )
    for node_info in node_infos:
        for index in node_info.overfull:
            if node_info.devices[index].gpu is not None:
                family.add_metric((node_info.name, str(index)), 1)
    return family


def _gpu_units(node_infos: Iterable[NodeInfo], *, accepts_pods: bool = True) -> Metric:
    """Units of the GPUs that nodes have; all units of an exclusive GPU are used.

    Free units are those that a further share may take: none on cordoned and unready nodes, nor
    where the device plugin is away.
    """
    family = GaugeMetricFamily(
        "gpushare_extender_gpu_units",
        "GPU memory units per GPU, in the unit of its node: in total, used, and free for shares.",
        labels=("node", "gpu", "kind"),
    )
    for node_info in node_infos:
        for index, device in node_info.devices.items():
            if device.gpu is None:
                continue
            accepts = accepts_pods and not _plugin_away(node_info)
            for kind, units in _units(device, accepts_pods=accepts).items():
                family.add_metric((node_info.name, str(index), kind), units)
    return family


def _plugin_away(node_info: NodeInfo) -> bool:
    """The node offers GPUs as devices, and nothing hands them out now."""
    inventory = node_info.inventory
    return inventory is not None and not inventory.serving and inventory.api != API_CLAIMS


def _units(device: DeviceInfo, *, accepts_pods: bool) -> dict[str, int]:
    used = max(device.used, device.total) if device.taken else device.used
    free = device.free if device.open and accepts_pods else 0
    return {"total": device.total, "used": used, "free": free}


class _Families(NamedTuple):
    """Metrics in the form that prometheus_client writes as text."""

    metrics: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def _text(*metrics: Metric) -> bytes:
    return generate_latest(_Families(metrics))


def _samples(metric: Metric) -> bytes:
    """The lines of a metric without its HELP and TYPE."""
    return _text(metric).split(b"\n", 2)[2]
