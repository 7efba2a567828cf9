"""Series that a pod of a tenant exports, to a Prometheus that scrapes such pods, count nowhere."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
from realprometheus import Series, now, prometheus
from recordedseries import GIB, RecordedPod

from gpuinspect.commands.admin import cost
from gpuinspect.sources.prometheus import gpu_figures, gpu_hours, pod_figures
from gpuinspect.sources.prometheus_histories import prometheus_histories

pytestmark = pytest.mark.slow

PLUGIN = {"job": "gpushare-device-plugin", "instance": "10.0.0.1:9395", "namespace": "gpushare"}
TENANT = {"job": "kubernetes-pods", "instance": "10.0.0.9:8080", "namespace": "team-a"}
"""Labels of the targets; no metric of a target replaces them."""
WEB = RecordedPod("web-1", [2.0], namespace="team-b")


class At(NamedTuple):
    """A Prometheus, and when its samples begin and end."""

    url: str
    begin: float
    end: float


def series(target: Mapping[str, str], gib: float, gpus: float, at: At) -> Iterator[Series]:
    """What a target exports of a pod and its GPU; without a job it is what rules record."""
    times = [at.begin + 60 * i for i in range(int((at.end - at.begin) / 60) + 1)]
    pod = {"exported_namespace": WEB.namespace, "exported_pod": WEB.name}
    amounts = {
        "gpushare_gpu_used_bytes": {"uuid": "GPU-n-0"},
        "gpushare_pod_used_bytes": {**pod, "gpu": "0"},
        "gpushare_recorded_used_bytes": WEB.labels,
        "gpushare_recorded_bytes": {**WEB.labels, "kind": "peak"},
    }
    if "job" in target:
        for name, labels in amounts.items():
            yield Series(name, {**target, **labels}, [(at, gib * GIB) for at in times])
    if target is not PLUGIN:
        for name in (cost.ALLOCATED, cost.USED):
            labels = {**target, "exported_namespace": WEB.namespace}
            yield Series(name, labels, [(at, gpus) for at in times])


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[At]:
    """Prometheus with an hour of a plugin, of recording rules, and of a tenant's forged series."""
    at = At("", now() - 3660, now() - 60)
    found = [
        *series(PLUGIN, 2, 0, at),
        *series({"namespace": "gpushare"}, 0, 1, at),
        *series(TENANT, 900, 500, at),
    ]
    with prometheus(tmp_path_factory.mktemp("prometheus"), found) as url:
        yield at._replace(url=url)


def test_memory_in_use_is_that_of_the_device_plugins(scraped: At) -> None:
    """As ``usage``, ``top`` and the dashboard show it of the pods and GPUs of others."""
    assert gpu_figures(scraped.url).used_bytes == {"GPU-n-0": 2 * GIB}
    assert pod_figures(scraped.url) == {"team-b/web-1": 2 * GIB}


@pytest.mark.parametrize("namespace", ["", "team-b"])
def test_sizes_are_recommended_by_series_of_the_device_plugins(scraped: At, namespace: str) -> None:
    """A peak that a tenant made up raises the size of no workload of others."""
    (found,) = prometheus_histories(scraped.url, namespace=namespace, days=1).items
    assert found.peak_bytes == 2 * GIB


def test_gpu_hours_are_those_of_the_recording_rules(scraped: At) -> None:
    """Whoever is scraped can export the name of a recorded series, and has an instance."""
    found = gpu_hours(scraped.url, cost.ALLOCATED, "2h")
    assert found == {"team-b": pytest.approx(1, abs=0.05)}
