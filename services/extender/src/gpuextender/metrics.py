"""Every figure this process publishes, under one registry. Labels are bounded: never a pod.

Figures of cards and claims are read from the ledger when they are asked for (see
:mod:`gpuextender.gauges`); those here are counted as things happen.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

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
    "Time to answer a verb of the scheduler.",
    ("verb",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
REFUSALS: Final = Counter(
    "gpushare_extender_refusals",
    "Nodes refused by filter, by reason code.",
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
    "Binding objects sent to the API server, retries included.",
    registry=REGISTRY,
)
EVENTS: Final = Counter(
    "gpushare_extender_events",
    "Events on pods: written, aggregated into an earlier one, or dropped.",
    ("fate",),
    registry=REGISTRY,
)
REQUEUES: Final = Counter(
    "gpushare_extender_requeues",
    "Waiting pods sent back to their scheduler because a node has room for them now, by outcome.",
    ("outcome",),
    registry=REGISTRY,
)
ADMISSIONS: Final = Counter(
    "gpushare_extender_admissions",
    "Pods seen by the admission webhook, by what became of them.",
    ("result",),
    registry=REGISTRY,
)
REFLECTOR_LISTS: Final = Counter(
    "gpushare_extender_reflector_lists",
    "Complete lists taken; more than one of a kind means that a watch was lost.",
    ("collection",),
    registry=REGISTRY,
)
REFLECTOR_FAILURES: Final = Counter(
    "gpushare_extender_reflector_failures",
    "Lists and watches that failed.",
    ("collection",),
    registry=REGISTRY,
)
REFLECTOR_AGE: Final = Gauge(
    "gpushare_extender_reflector_age_seconds",
    "Time since the API server was last heard.",
    ("collection",),
    registry=REGISTRY,
)
READY: Final = Gauge(
    "gpushare_extender_ready",
    "1 while decisions are taken.",
    registry=REGISTRY,
)
CERTIFICATE_EXPIRY: Final = Gauge(
    "gpushare_extender_certificate_expiry_timestamp_seconds",
    "Unix time at which the certificate in the folder ends.",
    ("folder",),
    registry=REGISTRY,
)
