"""Writes docs/metrics.md: every metric that a program of the stack publishes, read from it.

The words are those that Prometheus is told as help. Figures that the extender writes from its
ledger are taken from what it writes for a node with one pod. What Python itself adds to each
process (``process_*``, ``python_*``) is named once; its details are Prometheus' own.
"""
# ruff: noqa: INP001 - a script beside the page, no package

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from gpucore.ledger import Ledger
from gpucore.wire.names import Names
from gpucore.wire.nodes import decode_node
from gpucore.wire.pods import decode_pod
from gpudeviceplugin import telemetry
from gpuextender import metrics
from gpuextender.gauges import LedgerGauges

PAGE: Final = Path(__file__).resolve().parents[1] / "metrics.md"
HEAD: Final = """\
# Metrics

What Prometheus can read from the stack. Made by `python docs/generators/metricpage.py` from the
programs themselves.

The extender answers on `extender.metricsPort`, the device plugin on `devicePlugin.port`, both at
`/metrics`, [over TLS](monitoring.md#encryption) unless `monitoring.tls.enabled` is off. With
`monitoring.enabled` the chart creates PodMonitors for them and a ServiceMonitor for the second
kube-scheduler; [alert rules and runbooks](runbooks/index.md) stand on these metrics, and so do the
Grafana dashboards of `monitoring.dashboards`. A unit is what `devicePlugin.memoryUnit` says. Labels
are bounded: only the device plugin names pods, and only those of its own node.

Each process also publishes what Prometheus' client library knows of it, such as
`process_open_fds`, `process_start_time_seconds` and `python_gc_collections_total`.
"""
TABLE: Final = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
OTHERS: Final = "| metric | whose, and what |\n|---|---|\n"
FOREIGN: Final = {
    "up": "Prometheus: whether a target answered",
    "ALERTS": "Prometheus: alerts that fire, or are about to",
    "leader_election_master_status": "kube-scheduler: 1 in the replica that leads",
    "scheduler_pending_pods": "kube-scheduler: pods that wait, by queue",
    "scheduler_schedule_attempts_total": "kube-scheduler: attempts, by what came of them",
    "process_resident_memory_bytes": "each of our processes: memory that it has",
    "process_cpu_seconds_total": "each of our processes: CPU time that it took",
    "container_memory_working_set_bytes": "kubelet (cAdvisor): memory that counts for the limit",
    "container_spec_memory_limit_bytes": "kubelet (cAdvisor): the limit; 0 without one",
}
"""Metrics of other programs, or of the client library, that rules and dashboards ask for."""


class Metric(msgspec.Struct, frozen=True, order=True):
    """One metric.

    Attributes:
        name: as it is asked for; of a histogram without its endings.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    def row(self) -> str:
        """A line of the table."""
        labels = ", ".join(f"`{label}`" for label in self.labels)
        meaning = self.meaning.removesuffix(".")
        return f"| `{self.name}` | {self.kind} | {labels} | {meaning} |\n"

    def series(self) -> Iterator[str]:
        """Names that can stand in a query."""
        if self.kind == "histogram":
            yield from (f"{self.name}_{end}" for end in ("bucket", "count", "sum"))
        else:
            yield self.name


def extender() -> list[Metric]:
    """Those of the extender and the webhook."""
    return sorted([*_declared(metrics), *_of_ledger()])


def plugin() -> list[Metric]:
    """Those of the device plugin."""
    return sorted(_declared(telemetry))


def known() -> set[str]:
    """Every name that a rule or a dashboard may ask for."""
    own = (name for metric in (*extender(), *plugin()) for name in metric.series())
    return {*own, *FOREIGN}


def page() -> str:
    """The page as it should be."""
    others = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in FOREIGN.items())
    return "\n".join(
        (
            HEAD,
            f"## Extender and webhook\n\n{_table(extender())}",
            f"## Device plugin\n\n{_table(plugin())}",
            f"## Of others\n\nRules and dashboards also ask for these.\n\n{OTHERS}{others}",
        )
    )


def _table(found: Iterable[Metric]) -> str:
    return TABLE + "".join(metric.row() for metric in found)


def _declared(module: ModuleType) -> Iterator[Metric]:
    """Metrics that are attributes of a module."""
    for value in vars(module).values():
        if isinstance(value, MetricWrapperBase):
            (family,) = value.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = tuple(value._labelnames)  # noqa: SLF001 - the library shows them nowhere else
            yield Metric(name, family.type, labels, family.documentation)


def _of_ledger() -> Iterator[Metric]:
    """Those that the extender writes itself, as it writes them."""
    text = asyncio.run(LedgerGauges(_ledger(), tuple).render())
    for family in text_string_to_metric_families(text):
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels)
        yield Metric(family.name, family.type, tuple(labels), family.documentation)


def _ledger() -> Ledger:
    """One node with one card, and one pod on it."""
    ledger = Ledger(Names())
    offers = {"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    status = {"capacity": offers, "allocatable": offers}
    ledger.node_changed(decode_node(_object("Node", "n", status=status)))
    limits = {"resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}
    spec = {"nodeName": "n", "containers": [{"name": "c", **limits}]}
    ledger.pod_changed(decode_pod(_object("Pod", "p", spec=spec)))
    return ledger


def _object(kind: str, name: str, **more: Any) -> bytes:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return json.dumps({"kind": kind, "metadata": metadata, **more}).encode()


if __name__ == "__main__":
    PAGE.write_text(page())
