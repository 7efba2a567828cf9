"""``gpushare cost``: hours that Prometheus has recorded, and nothing invented where it has none."""

import json
from pathlib import Path

import fakeprometheus
import pytest
from invoking import Run

from gpuinspect.sources.prometheus import GPU_HOURS

ALLOCATED = GPU_HOURS.format(series="namespace:gpushare_allocated_gpus:sum", since="7d")
USED = GPU_HOURS.format(series="namespace:gpushare_used_gpus:sum", since="7d")


def test_hours_and_cost(run: Run) -> None:
    """Allocated hours are paid, used ones are shown beside them."""
    answers = {ALLOCATED: {"red": "100", "blue": "12.25"}, USED: {"red": "40"}}
    with fakeprometheus.serving(answers) as url:
        outcome = run("cost", "-A", "--price", "2.5", "--prometheus", url)
    assert outcome.code == 0
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["NAMESPACE", "ALLOCATED", "GPU-HOURS", "USED", "GPU-HOURS", "COST"],
        ["blue", "12.2", "-", "30.62"],
        ["red", "100.0", "40.0", "250.00"],
        ["TOTAL", "112.2", "40.0", "280.62"],
    ]


@pytest.mark.parametrize("in_use", ["0.5", ""])
def test_a_namespace_called_total_is_not_the_sum(run: Run, in_use: str) -> None:
    """A tenant may choose that name; its used hours are its own, or unknown."""
    own = {"total": in_use} if in_use else {}
    answers = {ALLOCATED: {"red": "100", "total": "1"}, USED: {"red": "40", **own}}
    with fakeprometheus.serving(answers) as url:
        outcome = run("cost", "-A", "--price", "2", "--prometheus", url)
    assert [line.split() for line in outcome.out.splitlines()[1:]] == [
        ["red", "100.0", "40.0", "200.00"],
        ["total", "1.0", in_use or "-", "2.00"],
        ["TOTAL", "101.0", "40.5" if in_use else "40.0", "202.00"],
    ]


def test_json_has_the_figures_unrounded(run: Run) -> None:
    """A namespace of which no use is known has null, not 0."""
    answers = {ALLOCATED: {"red": "100", "blue": "12.25"}, USED: {"red": "40"}}
    with fakeprometheus.serving(answers) as url:
        outcome = run("cost", "-A", "--price", "2.5", "-o", "json", "--prometheus", url)
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert (document["kind"], document["since"], document["price"]) == ("CostList", "7d", 2.5)
    assert document["items"] == [
        {"name": "blue", "allocatedGpuHours": 12.25, "usedGpuHours": None, "cost": 30.625},
        {"name": "red", "allocatedGpuHours": 100.0, "usedGpuHours": 40.0, "cost": 250.0},
    ]
    assert document["total"] == {"allocatedGpuHours": 112.25, "usedGpuHours": 40.0, "cost": 280.625}


def test_a_namespace_with_used_hours_alone_has_a_row(run: Run) -> None:
    """The total of the used hours is the sum of the rows."""
    answers = {ALLOCATED: {"a": "1", "c": "2"}, USED: {"a": "0.5", "b": "3"}}
    with fakeprometheus.serving(answers) as url:
        line = ("cost", "--price", "2", "--prometheus", url)
        table = run(*line, "-A", "--no-headers")
        document = json.loads(run(*line, "-A", "-o", "json").out)
        named = run(*line, "-A", "-o", "name")
        own = run(*line, "-n", "b", "--no-headers")
    assert [row.split() for row in table.out.splitlines()] == [
        ["a", "1.0", "0.5", "2.00"],
        ["b", "0.0", "3.0", "0.00"],
        ["c", "2.0", "-", "4.00"],
        ["TOTAL", "3.0", "3.5", "6.00"],
    ]
    assert document["total"]["usedGpuHours"] == 3.5
    assert document["items"][1] == {
        "name": "b",
        "allocatedGpuHours": 0.0,
        "usedGpuHours": 3.0,
        "cost": 0.0,
    }
    assert [name.split("/")[-1] for name in named.out.split()] == ["a", "b", "c"]
    assert own.out.split() == ["b", "0.0", "3.0", "0.00"]


def test_without_any_used_hours_their_total_is_unknown(run: Run) -> None:
    """``null`` in documents and ``-`` in the table, because 0 would be a measurement."""
    with fakeprometheus.serving({ALLOCATED: {"a": "1", "b": "2"}, USED: {}}) as url:
        table = run("cost", "-A", "--no-headers", "--prometheus", url)
        document = json.loads(run("cost", "-A", "-o", "json", "--prometheus", url).out)
    assert [row.split()[2] for row in table.out.splitlines()] == ["-", "-", "-"]
    assert "set devicePlugin.hostProcesses" in table.err
    assert document["total"]["usedGpuHours"] is None


def test_request_timeout_holds_for_both_queries(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocated and used hours are two requests."""
    timeouts: list[float] = []

    def hours(*_: str, seconds: float) -> dict[str, float]:
        timeouts.append(seconds)
        return {"a": 1.0}

    monkeypatch.setattr("gpuinspect.commands.admin.cost.gpu_hours", hours)
    assert run("cost", "-A", "--prometheus", "http://x", "--request-timeout", "7").code == 0
    assert timeouts == [7.0, 7.0]


def test_without_prometheus_there_is_no_history(run: Run) -> None:
    """The API server forgets pods that ended, so no figure would be right."""
    outcome = run("cost")
    assert outcome.code == 1
    assert "error: no history" in outcome.err


def test_without_rules_there_are_no_hours(run: Run) -> None:
    """The message names the value of the chart."""
    with fakeprometheus.serving({}) as url:
        outcome = run("cost", "--prometheus", url)
    assert outcome.code == 1
    assert "monitoring.recordingRules.enabled" in " ".join(outcome.err.split())


def test_a_server_that_is_none(run: Run) -> None:
    """Its reply is in the message."""
    with fakeprometheus.serving({}, status=503, body="overloaded") as url:
        assert "answers 503: overloaded" in run("cost", "--prometheus", url).err


@pytest.mark.parametrize("since", ["7", "0d", "d", "1y", "7d]) or up["])
def test_times_that_are_none(run: Run, since: str) -> None:
    """Nothing else reaches the query."""
    assert run("cost", "--since", since, "--prometheus", "http://x").code == 2


def test_one_namespace_is_that_of_the_context(run: Run, tmp_path: Path) -> None:
    """As in all commands that count pods: -n names another one, -A all."""
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: lab, clusters: [], users: [],"
        " contexts: [{name: lab, context: {cluster: c, namespace: blue}}]}"
    )
    answers = {ALLOCATED: {"red": "100", "blue": "12.25"}, USED: {"red": "40"}}
    with fakeprometheus.serving(answers) as url:
        line = ("cost", "--price", "2", "--no-headers", "--prometheus", url)
        own = run(*line, f"--kubeconfig={config}")
        other = run(*line, "-n", "red")
        assert run(*line, "-n", "red", "-A").code == 2
    assert (own.out.split(), own.err) == (["blue", "12.2", "-", "24.50"], "")
    assert other.out.split() == ["red", "100.0", "40.0", "200.00"]


def test_a_namespace_without_hours_is_named(run: Run) -> None:
    """The rules record others, so that nothing is to be installed."""
    with fakeprometheus.serving({ALLOCATED: {"red": "100"}, USED: {}}) as url:
        outcome = run("cost", "-n", "blue", "--prometheus", url)
    said = "no GPU-hours were allocated in namespace blue in 7d; -A reads all namespaces\n"
    assert (outcome.code, outcome.out, outcome.err) == (0, "", said)
