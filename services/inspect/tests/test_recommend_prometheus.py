"""``gpushare recommend --prometheus``: histories that Prometheus scraped from the plugins."""

import json
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeprometheus import serving
from invoking import Run
from measuredworkloads import history, written
from recordedseries import RecordedPod, RecordedSeries

from gpuinspect.sources import prometheus, prometheus_histories

pytestmark = pytest.mark.slow

LABELS = RecordedPod("web-1", []).labels


@pytest.fixture
def nodes(cluster: FakeCluster) -> FakeCluster:
    """One node with a GPU of 40 GiB."""
    return cluster.node("n", gpus=[Gpu(40)])


def recommended(run: Run, nodes: FakeCluster, series: RecordedSeries, *flags: str) -> Any:
    """The document."""
    with serving({}, respond=series.respond) as url:
        return json.loads(run("recommend", "--prometheus", url, "-o", "json", *flags, on=nodes).out)


def test_a_peak_between_two_samples_counts(run: Run, nodes: FakeCluster) -> None:
    """The plugins export the peak of all of their samples."""
    series = RecordedSeries(RecordedPod("web-1", [2, 3, 2, 3], peak=6))
    (item,) = recommended(run, nodes, series)["items"]
    assert (item["peakBytes"], item["recommended"]["request"]) == (6 << 30, 7)
    assert (item["name"], item["days"], item["starts"], item["pods"]) == ("web", 3, 4, 1)


def test_the_document_names_the_source_and_its_resolution(run: Run, nodes: FakeCluster) -> None:
    """A week is read in a thousand steps."""
    found = recommended(run, nodes, RecordedSeries(RecordedPod("web-1", [2, 3])))
    assert (found["source"], found["stepSeconds"]) == ("prometheus", 605)


def test_the_table_has_a_note_on_the_source(run: Run, nodes: FakeCluster) -> None:
    """On stderr, so that the table stays one."""
    series = RecordedSeries(RecordedPod("web-1", [2, 3]))
    with serving({}, respond=series.respond) as url:
        outcome = run("recommend", "--prometheus", url, "--window", "1d", on=nodes)
    assert "measured by Prometheus in 1d, with one sample every 87 s" in outcome.err
    assert outcome.out.startswith("WORKLOAD")


def test_the_pods_of_a_workload_are_added_up(run: Run, nodes: FakeCluster) -> None:
    """The highest peak of all pods counts, and each pod as one."""
    series = RecordedSeries(RecordedPod("web-1", [2, 3]), RecordedPod("web-2", [9, 3], starts=1))
    (item,) = recommended(run, nodes, series)["items"]
    assert (item["pods"], item["starts"], item["peakBytes"]) == (2, 5, 9 << 30)


def test_samples_count_for_the_whole_window(run: Run, nodes: FakeCluster) -> None:
    """Those of Prometheus do not fade: it has exactly the time that was chosen."""
    series = RecordedSeries(RecordedPod("web-1", [9, *[2] * 27]))
    (item,) = recommended(run, nodes, series, "--window", "4w")["items"]
    assert (item["peakBytes"], item["days"]) == (9 << 30, 27)


def test_a_pod_that_ran_out_of_memory_raises_the_size(run: Run, nodes: FakeCluster) -> None:
    """With the limit that was not enough, whatever was scraped."""
    with_time = RecordedSeries(RecordedPod("web-1", [2, 3]))
    recommended(run, nodes, with_time)
    now = float(with_time.asked[-1][1]["end"])
    events = {
        ("bytes", "ran_out"): 16 << 30,
        ("timestamp", "ran_out"): now - 60,
        ("count", "out_of_memory"): 1,
    }
    series = RecordedSeries(RecordedPod("web-1", [2, 3], more=events))
    (item,) = recommended(run, nodes, series)["items"]
    assert (item["reason"], item["recommended"]["request"]) == ("out-of-memory", 20)
    assert item["outOfMemory"] == 1


def test_the_sm_utilization_is_that_of_most_samples(run: Run, nodes: FakeCluster) -> None:
    """Of those that have it, in steps of 5 percent, over all pods of the workload."""
    series = RecordedSeries(
        RecordedPod("web-1", [2, 3, 2], sm_percents=[0, None, 42]),
        RecordedPod("web-2", [2, 3, 2], sm_percents=[None, 7, 0]),
    )
    (item,) = recommended(run, nodes, series)["items"]
    assert item["smP95Percent"] == 45


def test_without_sm_utilization_there_is_none(run: Run, nodes: FakeCluster) -> None:
    """The driver did not report it: 0 percent would be another statement."""
    (item,) = recommended(run, nodes, RecordedSeries(RecordedPod("web-1", [2, 3])))["items"]
    assert item["smP95Percent"] is None


def test_only_the_namespace_is_asked_for(run: Run, nodes: FakeCluster) -> None:
    """Every query selects it; -A selects nothing."""
    series = RecordedSeries(
        RecordedPod("a", [1, 2], namespace="team"), RecordedPod("b", [1, 2], namespace="other")
    )
    found = recommended(run, nodes, series, "-n", "team")
    assert [item["namespace"] for item in found["items"]] == ["team"]
    queries = [fields["query"] for _, fields in series.asked]
    assert len(queries) == 5
    assert all('exported_namespace="team"}' in query for query in queries)
    assert len(recommended(run, nodes, series, "-A")["items"]) == 2


def test_a_quote_in_the_namespace_does_not_end_the_selector(run: Run, nodes: FakeCluster) -> None:
    """It would select other series."""
    series = RecordedSeries()
    with serving({}, respond=series.respond) as url:
        run("recommend", "--prometheus", url, "-n", 'a"} or up{a="', on=nodes)
    assert 'exported_namespace="a\\"} or up{a=\\""}' in series.asked[0][1]["query"]


def test_the_samples_of_all_pods_are_bounded(
    run: Run, nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More pods have fewer samples each."""
    monkeypatch.setattr(prometheus_histories, "MOST_POINTS", 28)
    series = RecordedSeries(*(RecordedPod(f"web-{i}", [1, 2]) for i in range(4)))
    found = recommended(run, nodes, series)
    ranges = [fields for path, fields in series.asked if path == "query_range"]
    assert len(ranges) == 2, "memory in use and SM utilization"
    for fields in ranges:
        assert (fields["step"], found["stepSeconds"]) == ("86400", 86400)
        assert int(fields["end"]) - int(fields["start"]) == 7 * 86400
        assert fields["timeout"] == "30s"


def test_too_many_pods_are_refused_with_the_next_step(
    run: Run, nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any sample is read."""
    monkeypatch.setattr(prometheus_histories, "MOST_PODS", 1)
    series = RecordedSeries(RecordedPod("web-1", [1]), RecordedPod("web-2", [1]))
    with serving({}, respond=series.respond) as url:
        outcome = run("recommend", "--prometheus", url, on=nodes)
    assert outcome.code == 1
    assert "has 2 recorded pods, and at most 1 are read: choose a namespace" in outcome.err
    assert {path for path, _ in series.asked} == {"query"}


def test_a_reply_that_is_too_large_is_refused(
    run: Run, nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it has."""
    monkeypatch.setattr(prometheus, "MOST_BYTES", 1000)
    with serving({}, body=" " * 1001) as url:
        outcome = run("recommend", "--prometheus", url, on=nodes)
    assert (outcome.code, outcome.out) == (1, "")
    assert "answers more than 1000 bytes" in outcome.err


def test_the_words_of_a_server_that_refuses_are_shown(run: Run, nodes: FakeCluster) -> None:
    """Such as that a query reads too many samples."""
    with serving({}, status=422, body="query would load too many samples") as url:
        outcome = run("recommend", "--prometheus", url, on=nodes)
    assert outcome.code == 1
    assert "answers 422: query would load too many samples" in outcome.err


def test_without_series_the_values_of_the_chart_are_named(run: Run, nodes: FakeCluster) -> None:
    """An old plugin, or a Prometheus that does not scrape it."""
    with serving({}, respond=RecordedSeries().respond) as url:
        outcome = run("recommend", "--prometheus", url, "-n", "team", on=nodes)
    assert outcome.code == 1
    assert "no series gpushare_recorded_bytes of namespace team in 7d" in outcome.err
    assert "monitoring.enabled" in outcome.err


@pytest.mark.parametrize("label", ["workload", "exported_pod"])
def test_series_of_something_else_are_left_out(
    run: Run, nodes: FakeCluster, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """A name that is missing or that no object of Kubernetes can have."""
    good = RecordedPod("web-1", [2, 3])
    labels = {**RecordedPod("web-2", []).labels, label: "x" * 300}
    bad = RecordedPod("web-2", [9, 9])
    monkeypatch.setattr(
        RecordedPod,
        "labels",
        property(lambda pod: labels if pod is bad else {**LABELS, "exported_pod": pod.name}),
    )
    found = recommended(run, nodes, RecordedSeries(good, bad))
    assert [item["pods"] for item in found["items"]] == [1]


def test_a_file_of_histories_has_precedence(run: Run, nodes: FakeCluster, tmp_path: Path) -> None:
    """The address of Prometheus may come from the environment."""
    path = written(tmp_path / "h", [history("web", 2)])
    found = recommended(run, nodes, RecordedSeries(), "--history", str(path))
    assert (found["source"], found["stepSeconds"]) == ("file", 0)


def test_sizes_of_prometheus_are_placed_anew(run: Run, nodes: FakeCluster) -> None:
    """The note on the source is among the notes of the document."""
    with serving({}, respond=RecordedSeries(RecordedPod("web-1", [2, 3])).respond) as url:
        outcome = run("recommend", "--prometheus", url, "-A", "--whatif", "-o", "json", on=nodes)
    assert any("measured by Prometheus" in each for each in json.loads(outcome.out)["notes"])
