"""Series of the device plugins' usage recorder, as a fake Prometheus has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fakeprometheus import result_of

from gpuinspect.sources.prometheus import PLUGINS

GIB = 1 << 30
DAY = 86400


class RecordedPod(msgspec.Struct, frozen=True):
    """One pod, with use and peak in GiB and as many days as samples.

    Attributes:
        used: one sample a day, the last one now.
        sm_percents: SM utilization with each of these samples; ``None`` unknown.
        more: further figures by metric and kind.
    """

    name: str
    used: Sequence[float]
    peak: float = 0
    requested: float = 16
    starts: int = 4
    workload: str = "web"
    namespace: str = "default"
    more: Mapping[tuple[str, str], float] = {}
    sm_percents: Sequence[int | None] = ()

    @property
    def labels(self) -> dict[str, str]:
        """Those of all its series."""
        return {
            "exported_namespace": self.namespace,
            "exported_pod": self.name,
            "workload_kind": "Deployment",
            "workload": self.workload,
            "workload_container": "main",
        }

    def figures(self, metric: str) -> dict[str, float]:
        """The values of a metric by kind."""
        known = {
            ("bytes", "peak"): self.peak * GIB or max(self.used, default=0) * GIB,
            ("bytes", "requested"): self.requested * GIB,
            ("count", "starts"): self.starts,
            ("count", "gpus"): 1,
            **self.more,
        }
        return {kind: value for (name, kind), value in known.items() if name == metric and value}


class RecordedSeries:
    """Answers the queries of ``recommend``, and keeps them.

    Args:
        pods: what was recorded.

    Attributes:
        asked: path and fields of each request.
    """

    def __init__(self, *pods: RecordedPod) -> None:
        self._pods = pods
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    def respond(self, path: str, fields: Mapping[str, str]) -> str:
        """The body of a reply."""
        self.asked.append((path, fields))
        query = fields["query"]
        pods = [pod for pod in self._pods if self._is_chosen(pod, query)]
        if path == "query_range":
            end = int(fields["end"])
            rows = [_matrix(pod, "sm_utilization" in query, end) for pod in pods]
            return result_of("matrix", [row for row in rows if row["values"]])
        metric = query.partition("gpushare_recorded_")[2].partition("_seconds")[0]
        metric = metric.partition("[")[0].partition("{")[0]
        rows = [
            {"metric": {**pod.labels, "kind": kind}, "value": [0, str(value)]}
            for pod in pods
            for kind, value in pod.figures(metric).items()
        ]
        return result_of("vector", rows)

    @staticmethod
    def _is_chosen(pod: RecordedPod, query: str) -> bool:
        named = f'exported_namespace="{pod.namespace}"' in query
        return PLUGINS in query and (named or "exported_namespace=" not in query)


def _matrix(pod: RecordedPod, of_sm: bool, end: int) -> dict[str, Any]:
    first = end - (len(pod.used) - 1) * DAY
    samples = pod.sm_percents if of_sm else [int(used * GIB) for used in pod.used]
    values = [[first + i * DAY, str(each)] for i, each in enumerate(samples) if each is not None]
    return {"metric": pod.labels, "values": values}
