"""``gpushare recommend --prometheus`` against Prometheus itself, with a week of its own storage."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run
from realprometheus import Series, now, prometheus
from recordedseries import DAY, GIB, RecordedPod

pytestmark = pytest.mark.slow

EVERY = 1800
"""Seconds between two scrapes, so that a week has few."""
PLUGIN = {"job": "gpushare-device-plugin", "namespace": "gpushare", "pod": "plugin-a", "node": "n"}
"""Labels of the target, which change when the plugin's pod is another."""


def scraped(
    pod: RecordedPod, begin: float, end: float, *, plugin: str = "plugin-a"
) -> Iterator[Series]:
    """All series of a pod whose samples repeat between two times."""
    target = {**PLUGIN, "pod": plugin, **pod.labels}
    times = [begin + i * EVERY for i in range(int((end - begin) / EVERY) + 1)]
    used = [(at, pod.used[i % len(pod.used)] * GIB) for i, at in enumerate(times)]
    yield Series("gpushare_recorded_used_bytes", target, used)
    if pod.sm_percents:
        percents = [(at, pod.sm_percents[i % len(pod.sm_percents)]) for i, at in enumerate(times)]
        known = [(at, percent) for at, percent in percents if percent is not None]
        yield Series("gpushare_recorded_sm_utilization_percent", target, known)
    for metric in ("bytes", "count"):
        for kind, value in pod.figures(metric).items():
            samples = [(at, value) for at in times]
            yield Series(f"gpushare_recorded_{metric}", {**target, "kind": kind}, samples)


@pytest.fixture
def nodes(cluster: FakeCluster) -> FakeCluster:
    """One node with a GPU of 40 GiB."""
    return cluster.node("n", gpus=[Gpu(40)])


def recommended(run: Run, nodes: FakeCluster, url: str, *flags: str) -> dict[str, Any]:
    """The items by name of their workload."""
    out = run("recommend", "--prometheus", url, "-A", "-o", "json", *flags, on=nodes).out
    return {item["name"]: item for item in json.loads(out)["items"]}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with a week of four workloads."""
    end = now() - 60
    moved = RecordedPod("db-1", [4.0], workload="db", starts=7)
    series = [
        *scraped(
            RecordedPod(
                "web-1", [2.0] * 9 + [3.0], peak=6, sm_percents=[None] * 5 + [0] * 4 + [61]
            ),
            end - 6 * DAY,
            end,
        ),
        *scraped(
            RecordedPod("old-1", [5.0], workload="old", namespace="research"),
            end - 6 * DAY,
            end - 2 * DAY,
        ),
        *scraped(moved, end - 6 * DAY, end - 3 * DAY - EVERY),
        *scraped(moved, end - 3 * DAY, end, plugin="plugin-b"),
        *scraped(
            RecordedPod("api-1", [9.0], workload="api", sm_percents=[88]),
            end - 6 * DAY,
            end - 4 * DAY,
        ),
        *scraped(RecordedPod("api-2", [2.0], workload="api", sm_percents=[3]), end - 4 * DAY, end),
    ]
    with prometheus(tmp_path_factory.mktemp("prometheus"), series) as address:
        yield address


def test_a_week_of_series_gives_the_figures_that_the_plugins_recorded(
    run: Run, nodes: FakeCluster, url: str
) -> None:
    """Also of a pod that ended days ago, and of one whose plugin was replaced meanwhile."""
    found = recommended(run, nodes, url)

    pods = {name: item["pods"] for name, item in found.items()}
    assert pods == {"web": 1, "old": 1, "db": 1, "api": 2}
    assert (found["web"]["peakBytes"], found["web"]["recommended"]["request"]) == (6 * GIB, 7)
    assert (found["old"]["namespace"], found["old"]["peakBytes"]) == ("research", 5 * GIB)
    assert (found["db"]["starts"], found["db"]["peakBytes"]) == (7, 4 * GIB)
    assert found["web"]["days"] == pytest.approx(6, abs=0.1)
    assert found["old"]["days"] == pytest.approx(4, abs=0.1)


def test_only_the_window_is_read(run: Run, nodes: FakeCluster, url: str) -> None:
    """A peak of last week does not keep a share large for ever."""
    week = recommended(run, nodes, url)["api"]
    days = recommended(run, nodes, url, "--window", "3d")["api"]

    assert (week["peakBytes"], week["pods"]) == (9 * GIB, 2)
    assert (days["peakBytes"], days["pods"]) == (2 * GIB, 1)


def test_the_sm_utilization_of_the_window_is_read(run: Run, nodes: FakeCluster, url: str) -> None:
    """As the plugins recorded it: absent samples do not count, and those of an ended pod do."""
    week = recommended(run, nodes, url)
    days = recommended(run, nodes, url, "--window", "3d")

    assert {name: item["smP95Percent"] for name, item in week.items()} == {
        "web": 65,
        "api": 90,
        "old": None,
        "db": None,
    }
    assert days["api"]["smP95Percent"] == 5
