"""Histories of pods as Prometheus has them: every figure of the recorder, and no other series."""

from typing import Any

import pytest
from fakeprometheus import result_of, serving
from recordedseries import DAY, GIB, RecordedPod, RecordedSeries

from gpucore.sizing.usage_history import LimitEvent, UsageHistory, WorkloadKey
from gpuinspect.sources import prometheus_histories as of_prometheus
from gpuinspect.sources.prometheus_histories import prometheus_histories

pytestmark = pytest.mark.slow


def read(series: RecordedSeries) -> tuple[UsageHistory, ...]:
    """The histories of a week."""
    with serving({}, respond=series.respond) as url:
        return prometheus_histories(url, namespace="", days=7).items


def test_each_figure_of_the_recorder_is_that_of_the_history() -> None:
    """A limit, several GPUs and claims change what is recommended; events and starts raise it."""
    more = {
        ("bytes", "limit"): 20 * GIB,
        ("bytes", "start_peak"): 5 * GIB,
        ("bytes", "reached"): 20 * GIB,
        ("bytes", "ran_out"): 18 * GIB,
        ("count", "gpus"): 2,
        ("count", "claims"): 1,
        ("count", "out_of_memory"): 3,
        ("timestamp", "reached"): 1000,
        ("timestamp", "ran_out"): 2000,
    }
    series = RecordedSeries(
        RecordedPod("web-1", [2, 3], peak=6, starts=4, more=more, sm_percents=[0, 42])
    )
    (found,) = read(series)
    assert found.key == WorkloadKey("default", "Deployment", "web", "main")
    assert (found.pods, found.starts, found.samples, found.out_of_memory) == (1, 4, 2, 3)
    assert (found.requested_bytes, found.limit_bytes) == (16 * GIB, 20 * GIB)
    assert (found.peak_bytes, found.start_peak_bytes) == (6 * GIB, 5 * GIB)
    assert (found.gpus, found.claims) == (2, True)
    assert found.reached == LimitEvent(1000, 20 * GIB)
    assert found.ran_out == LimitEvent(2000, 18 * GIB)
    assert found.last_seen - found.first_seen == DAY
    assert (sum(found.buckets.values()), found.sm_buckets) == (2, {0: 1, 9: 1})


def test_the_last_step_ends_now() -> None:
    """A window that is no multiple of the step begins earlier: the newest sample is read."""
    series = RecordedSeries(RecordedPod("web-1", [2]))
    with serving({}, respond=series.respond) as url:
        prometheus_histories(url, namespace="", days=7)
    ranges = [fields for path, fields in series.asked if path == "query_range"]
    spans = {int(each["end"]) - int(each["start"]) for each in ranges}
    (step,) = {int(each["step"]) for each in ranges}
    assert 7 * DAY % step != 0
    assert [span % step for span in spans] == [0]
    assert min(spans) >= 7 * DAY


def test_a_sample_above_the_recorded_peak_is_the_peak() -> None:
    """Prometheus scrapes the figures one after the other: the peak may lag behind the use."""
    (found,) = read(RecordedSeries(RecordedPod("web-1", [5], peak=3)))
    assert found.peak_bytes == 5 * GIB


def test_figures_that_are_absent_are_zero() -> None:
    """The plugin exports no zeros."""
    (found,) = read(RecordedSeries(RecordedPod("web-1", [2], starts=0, requested=0)))
    assert (found.starts, found.requested_bytes, found.limit_bytes) == (0, 0, 0)
    assert (found.start_peak_bytes, found.out_of_memory, found.claims) == (0, 0, False)
    assert (found.reached.at, found.ran_out.at, found.sm_buckets) == (0, 0, {})


def test_a_pod_without_samples_of_memory_has_its_figures() -> None:
    """It ended between two points of the range."""
    (found,) = read(RecordedSeries(RecordedPod("web-1", [], peak=6, sm_percents=[50])))
    assert (found.samples, found.peak_bytes, found.sm_buckets) == (0, 6 * GIB, {})


def answering(value: str, **labels: str) -> Any:
    """A server whose every series has these labels and one value."""
    known = {**RecordedPod("web-1", []).labels, "kind": "peak", **labels}

    def respond(path: str, fields: Any) -> str:
        if path == "query_range":
            return result_of("matrix", [{"metric": known, "values": [[1000, value]]}])
        return result_of("vector", [{"metric": known, "value": [1000, value]}])

    return respond


@pytest.mark.parametrize(("points", "days"), [(2, 6), (1_000_000, 2)])
def test_only_steps_of_several_days_count_in_full(
    monkeypatch: pytest.MonkeyPatch, points: int, days: int
) -> None:
    """Between smaller steps a pod without samples was not measured, such as one of the same name.

    Where many pods are read over a long window, two samples of a pod lie days apart.
    """
    monkeypatch.setattr(of_prometheus, "MOST_POINTS", points)
    known = {**RecordedPod("web-1", []).labels, "kind": "peak"}
    values = [[1000 + 3 * DAY * step, str(GIB)] for step in range(3)]

    def respond(path: str, _fields: Any) -> str:
        if path == "query_range":
            return result_of("matrix", [{"metric": known, "values": values}])
        return result_of("vector", [{"metric": known, "value": [1000, str(GIB)]}])

    with serving({}, respond=respond) as url:
        (found,) = prometheus_histories(url, namespace="", days=7).items
    assert found.last_seen - found.first_seen == days * DAY


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "9007199254740994", "much"])
def test_a_value_that_no_plugin_exports_is_none(value: str) -> None:
    """Sums and documents of it would have no meaning."""
    with serving({}, respond=answering(value)) as url:
        assert prometheus_histories(url, namespace="", days=7).items == ()


@pytest.mark.parametrize("value", ["0", "9007199254740992"])
def test_the_least_and_the_most_that_a_plugin_can_export_count(value: str) -> None:
    """The most is what a number of JSON holds exactly."""
    with serving({}, respond=answering(value)) as url:
        (found,) = prometheus_histories(url, namespace="", days=7).items
    assert (found.samples, found.peak_bytes) == (1, int(value))


@pytest.mark.parametrize(
    ("label", "value", "counts"),
    [
        ("workload", "x" * 253, True),
        ("workload", "x" * 254, False),
        ("workload", "", False),
        ("exported_namespace", "", False),
        ("exported_pod", "", False),
        ("workload_kind", "", False),
        ("workload_container", "", True),
        ("workload_container", "x" * 254, False),
    ],
)
def test_a_series_counts_if_its_names_are_those_of_objects(
    label: str, value: str, counts: bool
) -> None:
    """Without a container it is of all containers of the pod together."""
    with serving({}, respond=answering("7", **{label: value})) as url:
        assert len(prometheus_histories(url, namespace="", days=7).items) == counts
