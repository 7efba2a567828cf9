"""Current figures of GPUs from Prometheus, by GPU UUID, through its HTTP API.

Prometheus may scrape pods of tenants too, which can export any series and any label but those of
their target. So series of the device plugins are chosen by their job, which is that of the chart's
rules, and series of recording rules by having no instance.
"""

import math
import time
from collections.abc import Mapping
from typing import Final

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from gpuinspect.errors import PrometheusError

PLUGINS: Final = 'job="gpushare-device-plugin"'
USED_BYTES: Final = f"max by (uuid) (gpushare_gpu_used_bytes{{{PLUGINS}}})"
UTILIZATION: Final = "max by (UUID) (DCGM_FI_DEV_GPU_UTIL)"
"""NVIDIA's dcgm-exporter publishes it; our device plugin does not measure it."""
POD_USED_BYTES: Final = (
    "sum by (pod) (label_join("
    f"max by (gpu, exported_namespace, exported_pod) (gpushare_pod_used_bytes{{{PLUGINS}}}),"
    ' "pod", "/", "exported_namespace", "exported_pod"))'
)
"""Largest value of several scrapes for each GPU of a pod, summed over the pod's GPUs."""
GPU_HOURS: Final = (
    'sum by (exported_namespace) (sum_over_time({series}{{instance=""}}[{since}])) / 60'
)
"""The recording rules are evaluated once a minute."""
TIMEOUT_SECONDS: Final = 10.0
MOST_BYTES: Final = 64 * 1024 * 1024
"""One number is about 30 bytes of JSON."""
QUERY: Final = "query"
QUERY_RANGE: Final = "query_range"
_MAX_TEXT: Final = 200
_CHUNK: Final = 1 << 18


class GpuFigures(msgspec.Struct, frozen=True):
    """Figures by GPU UUID; a GPU without a figure in Prometheus is absent."""

    used_bytes: Mapping[str, float]
    utilization: Mapping[str, float]


class Series(msgspec.Struct):
    """One series: its labels, and its value now or its values over a time."""

    metric: dict[str, str]
    value: tuple[float, str] = (0.0, "")
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[Series]


class _Answer(msgspec.Struct):
    data: _Data


def gpu_figures(url: str) -> GpuFigures:
    """Memory in use in bytes, and utilization in percent where dcgm-exporter runs.

    Raises:
        PrometheusError: there is no Prometheus at ``url``, or it does not respond.
    """
    with urllib3.PoolManager(timeout=TIMEOUT_SECONDS, retries=False) as pool:
        return GpuFigures(_query(pool, url, USED_BYTES), _query(pool, url, UTILIZATION))


def pod_figures(url: str) -> Mapping[str, float]:
    """Memory in use in bytes by ``namespace/name`` of the pod.

    Raises:
        PrometheusError: as of :func:`gpu_figures`.
    """
    with urllib3.PoolManager(timeout=TIMEOUT_SECONDS, retries=False) as pool:
        return _query(pool, url, POD_USED_BYTES)


def gpu_hours(
    url: str, series: str, since: str, *, seconds: float = TIMEOUT_SECONDS
) -> Mapping[str, float]:
    """Hours of a GPU by namespace, of a series that is recorded once a minute.

    Args:
        since: range of PromQL, such as ``7d``.
        seconds: timeout of the request.

    Raises:
        PrometheusError: as of :func:`gpu_figures`.
    """
    with urllib3.PoolManager(timeout=seconds, retries=False) as pool:
        return _query(pool, url, GPU_HOURS.format(series=series, since=since), seconds)


def _query(
    pool: urllib3.PoolManager, url: str, query: str, seconds: float = TIMEOUT_SECONDS
) -> Mapping[str, float]:
    found = read_series(pool, url, {"query": query}, seconds=seconds)
    figures = ((label, number(one.value)) for one in found for label in one.metric.values())
    return {name: figure for name, figure in figures if math.isfinite(figure)}


def number(value: tuple[float, str]) -> float:
    """The value of a sample; NaN for what is no number."""
    try:
        return float(value[1])
    except ValueError:
        return math.nan


def read_series(
    pool: urllib3.PoolManager,
    url: str,
    fields: Mapping[str, str],
    *,
    path: str = QUERY,
    seconds: float = TIMEOUT_SECONDS,
) -> list[Series]:
    """The series of a reply.

    Args:
        fields: of the request, such as ``query``.
        path: of the API, :data:`QUERY` or :data:`QUERY_RANGE`.
        seconds: for the whole reply.

    Raises:
        PrometheusError: there is no Prometheus at ``url``, or it refuses the query, or its reply is
            too large, too slow or none of a Prometheus.
    """
    if not url.startswith(("http://", "https://")):
        raise PrometheusError(f"{url!r} is not the URL of a Prometheus: use http:// or https://")
    until = time.monotonic() + seconds
    address = f"{url.rstrip('/')}/api/v1/{path}"
    try:
        answer = pool.request("GET", address, fields=dict(fields), preload_content=False)
        body = _read(answer, url, until)
    except HTTPError as error:
        raise PrometheusError(f"Prometheus at {url} does not respond: {error}") from error
    if answer.status != 200:
        text = body[:_MAX_TEXT].decode(errors="replace")
        raise PrometheusError(f"Prometheus at {url} answers {answer.status}: {text}")
    try:
        return msgspec.json.decode(body, type=_Answer).data.result
    except (msgspec.MsgspecError, ValueError) as error:
        raise PrometheusError(f"{url} is not a Prometheus server: {error}") from error


def _read(answer: urllib3.BaseHTTPResponse, url: str, until: float) -> bytes:
    """The body; a server that sends it byte by byte does not hold the command."""
    parts, size = [], 0
    try:
        while chunk := answer.read(_CHUNK, decode_content=True):
            parts.append(chunk)
            size += len(chunk)
            if size > MOST_BYTES:
                raise PrometheusError(f"Prometheus at {url} answers more than {MOST_BYTES} bytes")
            if time.monotonic() > until:
                raise PrometheusError(f"Prometheus at {url} does not respond in time")
    finally:
        answer.close()
    return b"".join(parts)
