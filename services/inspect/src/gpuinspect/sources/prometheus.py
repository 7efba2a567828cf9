"""Current figures of GPUs from Prometheus, by GPU UUID, through its HTTP API."""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import urllib3

from gpuinspect.errors import PrometheusError
from gpuinspect.sources.prometheus_api import TIMEOUT_SECONDS, reply

USED_BYTES: Final = "max by (uuid) (gpushare_gpu_used_bytes)"
UTILIZATION: Final = "max by (UUID) (DCGM_FI_DEV_GPU_UTIL)"
"""NVIDIA's dcgm-exporter publishes it; our device plugin does not measure it."""
POD_USED_BYTES: Final = (
    "sum by (pod) (label_join("
    "max by (gpu, exported_namespace, exported_pod) (gpushare_pod_used_bytes),"
    ' "pod", "/", "exported_namespace", "exported_pod"))'
)
"""Largest value of several scrapes for each GPU of a pod, summed over the pod's GPUs."""
GPU_HOURS: Final = "sum by (exported_namespace) (sum_over_time({series}[{since}])) / 60"
"""The recording rules are evaluated once a minute."""


class GpuFigures(msgspec.Struct, frozen=True):
    """Figures by GPU UUID; a GPU without a figure in Prometheus is absent."""

    used_bytes: Mapping[str, float]
    utilization: Mapping[str, float]


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Sample]


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
    body = reply(pool, url, {"query": query}, seconds=seconds)
    try:
        samples = msgspec.json.decode(body, type=_Answer).data.result
        figures = ((label, float(one.value[1])) for one in samples for label in one.metric.values())
        return {uuid: figure for uuid, figure in figures if math.isfinite(figure)}
    except (msgspec.MsgspecError, ValueError) as error:
        raise PrometheusError(f"{url} is not a Prometheus server: {error}") from error
