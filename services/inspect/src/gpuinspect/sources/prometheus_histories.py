"""Histories of workloads from Prometheus, which scrapes what the device plugins recorded.

Memory in use and SM utilization come from one range query each, with at most :data:`MOST_POINTS`
samples in all. Peaks, starts and
out-of-memory events come from instant queries over the same time: the plugins export them from
each of their own samples, so what lies between two scrapes, or two points of the range, counts.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import urllib3

from gpucore.sizing.usage_history import (
    GAP_SECONDS,
    NEVER,
    LimitEvent,
    UsageHistory,
    WorkloadKey,
)
from gpuinspect.errors import PrometheusError
from gpuinspect.sources.prometheus import (
    PLUGINS,
    QUERY,
    QUERY_RANGE,
    Series,
    number,
    read_series,
)

MOST_PODS: Final = 20_000
MOST_POINTS: Final = 1_000_000
"""About 30 MB of JSON."""
MOST_POINTS_OF_POD: Final = 1000
LEAST_STEP_SECONDS: Final = 60
MOST_SECONDS: Final = 60.0
_DAY: Final = 86400
_MOST: Final = 2.0**53
_MOST_NAME: Final = 253
_LABELS: Final = (
    "exported_namespace",
    "exported_pod",
    "workload_kind",
    "workload",
    "workload_container",
)
_BY: Final = ", ".join(_LABELS)
USED: Final = "gpushare_recorded_used_bytes"
SM_PERCENT: Final = "gpushare_recorded_sm_utilization_percent"
FIGURES: Final = (
    "gpushare_recorded_bytes",
    "gpushare_recorded_count",
    "gpushare_recorded_timestamp_seconds",
)
_Figures = Mapping[tuple[str, str], float]
"""Values by metric and kind."""


class _PodKey(NamedTuple):
    """The labels of a recorded pod."""

    namespace: str
    pod: str
    kind: str
    workload: str
    container: str


class PrometheusHistories(msgspec.Struct, frozen=True):
    """What Prometheus has.

    Attributes:
        items: one history for each pod; several are of one workload.
        step_seconds: between two samples.
    """

    items: tuple[UsageHistory, ...]
    step_seconds: int = 0


def prometheus_histories(
    url: str, *, namespace: str, days: float, seconds: float = MOST_SECONDS
) -> PrometheusHistories:
    """The histories of all pods that were recorded in a time.

    Args:
        namespace: empty for all.
        seconds: timeout of each request.

    Raises:
        PrometheusError: Prometheus does not respond or refuses a query, or there are more pods
            than :data:`MOST_PODS`.
    """
    span, end = round(days * _DAY), int(time.time())
    within = f",exported_namespace={json.dumps(namespace)}" if namespace else ""
    chosen = f"{{{PLUGINS}{within}}}"
    with urllib3.PoolManager(timeout=seconds, retries=False) as pool:
        asking = _Asking(pool, url, seconds)
        figures = asking.figures(chosen, span, end)
        if not figures:
            return PrometheusHistories(())
        step = _step(span, len(figures))
        used = asking.points(USED, chosen, span, end, step)
        sm_percents = asking.points(SM_PERCENT, chosen, span, end, step)
    items = (
        _history(key, each, used.get(key, ()), dict(sm_percents.get(key, ())), step)
        for key, each in sorted(figures.items())
    )
    return PrometheusHistories(tuple(items), step)


def _step(span: int, pods: int) -> int:
    """Seconds between two samples, so that all pods together have a bounded number of them."""
    each = min(MOST_POINTS_OF_POD, max(MOST_POINTS // pods, 1))
    return max(-(-span // each), LEAST_STEP_SECONDS)


class _Asking(NamedTuple):
    """Queries to one Prometheus."""

    pool: urllib3.PoolManager
    url: str
    seconds: float

    def figures(
        self, chosen: str, span: int, end: int
    ) -> dict[_PodKey, dict[tuple[str, str], float]]:
        """Peaks, starts and events of each pod."""
        found: dict[_PodKey, dict[tuple[str, str], float]] = {}
        for metric in FIGURES:
            query = f"max by ({_BY}, kind) (max_over_time({metric}{chosen}[{span}s]))"
            for series in self._ask({"query": query, "time": str(end)}, QUERY):
                key, value = _key(series.metric), _number(series.value)
                if key is not None and value is not None:
                    found.setdefault(key, {})[metric, series.metric.get("kind", "")] = value
        if len(found) > MOST_PODS:
            raise PrometheusError(
                f"Prometheus at {self.url} has {len(found)} recorded pods, and at most {MOST_PODS}"
                " are read: choose a namespace with -n, or a shorter --window"
            )
        return found

    def points(
        self, metric: str, chosen: str, span: int, end: int, step: int
    ) -> dict[_PodKey, list[tuple[float, int]]]:
        """Times and values of each pod: the last sample of each step."""
        query = f"max by ({_BY}) (last_over_time({metric}{chosen}[{step}s]))"
        start = end - -(-span // step) * step
        fields = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        found = {}
        for series in self._ask(fields, QUERY_RANGE):
            key = _key(series.metric)
            if key is not None:
                found[key] = list(_samples(series.values))
        return found

    def _ask(self, fields: Mapping[str, str], path: str) -> list[Series]:
        timeout = {"timeout": f"{max(round(self.seconds), 1)}s"}
        return read_series(
            self.pool, self.url, {**fields, **timeout}, path=path, seconds=self.seconds
        )


def _key(metric: Mapping[str, str]) -> _PodKey | None:
    """The pod of a series; ``None`` where a name is missing or too long."""
    names = [metric.get(label, "") for label in _LABELS]
    usable = all(names[:-1]) and all(len(name) <= _MOST_NAME for name in names)
    return _PodKey(*names) if usable else None


def _number(value: tuple[float, str]) -> float | None:
    """A value from 0 on; ``None`` for others."""
    found = number(value)
    return found if 0 <= found <= _MOST else None


def _samples(values: Iterable[tuple[float, str]]) -> Iterator[tuple[float, int]]:
    for value in values:
        found = _number(value)
        if found is not None:
            yield value[0], int(found)


def _history(
    key: _PodKey,
    figures: _Figures,
    used_bytes: Sequence[tuple[float, int]],
    sm_percents: Mapping[float, int],
    step: int,
) -> UsageHistory:
    """The history of one pod, as the recorder of its plugin would have it.

    Args:
        used_bytes: times and values.
        sm_percents: values by time.
        step: seconds between two samples of a pod that runs.
    """
    amount, count, _ = FIGURES
    workload = WorkloadKey(key.namespace, key.kind, key.workload, key.container)
    found = UsageHistory(workload, pods=1, starts=int(figures.get((count, "starts"), 0)))
    requested, limit = (int(figures.get((amount, kind), 0)) for kind in ("requested", "limit"))
    gpus, claims = (int(figures.get((count, kind), 0)) for kind in ("gpus", "claims"))
    for at, used in used_bytes:
        found.record(
            at,
            used,
            requested_bytes=requested,
            limit_bytes=limit,
            gpus=gpus,
            claims=bool(claims),
            sm_percent=sm_percents.get(at),
        )
    if used_bytes and step > GAP_SECONDS:  # there are many pods
        found.first_seen = used_bytes[0][0]
    found.peak_bytes = max(found.peak_bytes, int(figures.get((amount, "peak"), 0)))
    found.start_peak_bytes = int(figures.get((amount, "start_peak"), 0))
    found.out_of_memory = int(figures.get((count, "out_of_memory"), 0))
    found.ran_out, found.reached = _event(figures, "ran_out"), _event(figures, "reached")
    return found


def _event(figures: _Figures, kind: str) -> LimitEvent:
    amount, _, moment = FIGURES
    at = figures.get((moment, kind), 0.0)
    return LimitEvent(at, int(figures.get((amount, kind), 0))) if at else NEVER
