"""The Grafana dashboards: whole, current, and asking for what there is."""

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dashboards
import grafanamodel
import metricpage
import pytest
from charting import render
from queries import metrics_of
from test_alerts import promtool

pytestmark = pytest.mark.slow

NAMES = dashboards.names()
UNITS = {"short", "percentunit", "ops", "s", "bytes"}
OWN_OF_GRAFANA = {"__rate_interval"}


def load(name: str) -> dict[str, Any]:
    """A dashboard as it is installed."""
    content: dict[str, Any] = json.loads((dashboards.FOLDER / f"{name}.json").read_text())
    return content


def queries(name: str) -> Iterator[str]:
    """All that it queries, its variables included where they name a metric."""
    content = load(name)
    for panel in content["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in content["templating"]["list"]:
        if variable["type"] == "query":
            yield re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])[1]


def test_there_is_one_of_the_cluster_of_a_node_of_the_scheduler_and_of_sizes() -> None:
    """The four that operators open, under addresses that do not change."""
    assert NAMES == ["cluster", "node", "scheduler", "sizes"]
    assert [load(name)["uid"] for name in NAMES] == [f"gpushare-{name}" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_file_is_up_to_date(name: str) -> None:
    """It is what `python helm/dashboards.py` writes now."""
    assert (dashboards.FOLDER / f"{name}.json").read_text() == dashboards.text(name)


@pytest.mark.parametrize("name", NAMES)
def test_grafana_knows_every_field_and_value(name: str) -> None:
    """By the types that Grafana generates from the schema of its dashboards, panels and queries."""
    assert grafanamodel.faults(load(name)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unknown", 1),
        ("options.unknown", 1),
        ("targets.0.unknown", "x"),
        ("title", 3),
        ("options.colorMode", "pink"),
        ("options.reduceOptions.values", "no"),
        ("fieldConfig.defaults.thresholds.mode", "relative"),
        ("gridPos.w", "4"),
        ("targets.0.expr", 1),
    ],
)
def test_grafana_refuses_what_its_schema_does_not_have(field: str, value: Any) -> None:
    """The comparison above finds unknown fields, wrong types and values that are none of a list."""
    content = load("cluster")
    place: Any = next(panel for panel in content["panels"] if panel["type"] == "stat")
    *way, last = field.split(".")
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    place[last] = value
    (fault, *_) = grafanamodel.faults(content)
    (found,) = re.findall(r"^dashboard\.panels\[\d+\]\.(\S+) is ", fault)
    assert found.replace("[", ".").replace("]", "").replace("_", "").endswith(last.lower())


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_explains_what_it_shows(name: str) -> None:
    """Title, description and unit on each, no title twice, and a legend for each query."""
    panels = load(name)["panels"]
    assert len(panels) >= 8
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert all(target["legendFormat"] for target in panel["targets"])


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_covers_another(name: str) -> None:
    """Each has its own place within Grafana's 24 columns."""
    places = [panel["gridPos"] for panel in load(name)["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_is_defined_and_used(name: str) -> None:
    """A query on a variable that nobody sets shows nothing; $1 is a group of label_replace."""
    content = load(name)
    defined = {variable["name"] for variable in content["templating"]["list"]}
    used = set(re.findall(r"\$\{?([A-Za-z_]\w*)", json.dumps(content["panels"])))
    assert used - OWN_OF_GRAFANA == defined


@pytest.mark.parametrize("name", NAMES)
def test_queries_ask_only_for_metrics_and_labels_that_exist(name: str) -> None:
    """A panel on a metric that nobody publishes would be empty for ever."""
    queried = {metric for query in queries(name) for metric in metrics_of(query)}
    assert len(queried) >= 5
    assert queried <= metricpage.known()


@pytest.mark.parametrize("name", NAMES)
def test_legends_speak_of_labels_that_the_query_keeps(name: str) -> None:
    """A legend with a label that was summed away is empty."""
    for panel in load(name)["panels"]:
        for target in panel["targets"]:
            spoken = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = re.findall(r"\bby \(([\w, ]+)\)", target["expr"])
            known = {label.strip() for group in kept for label in group.split(",")}
            assert spoken <= (known or {"pod"}), (panel["title"], spoken, known)


def test_promtool_reads_every_query(promtool_path: Path, tmp_path: Path) -> None:
    """Each is PromQL, once Grafana has put its variables in."""
    rules = [
        {"record": f"panel:{name}:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for name in NAMES
        for number, query in enumerate(queries(name))
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [promtool_path, "check", "rules", file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def query(name: str, title: str) -> str:
    """The first query of a panel."""
    (panel,) = (panel for panel in load(name)["panels"] if panel["title"] == title)
    return str(panel["targets"][0]["expr"])


def test_panels_show_a_single_error_and_the_lack_of_a_leader(
    promtool_path: Path, tmp_path: Path
) -> None:
    """A counter that begins with its first event has no increase, and no series has no sum."""
    xid = 'gpushare_gpu_xid_total{job="gpushare-device-plugin",node="n",gpu="GPU-a",xid="79"}'
    expected = [
        (query("node", "GPU errors").replace("$node", "n"), '{xid="79"}', 1),
        (query("scheduler", "Leaders"), "{}", 0),
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": xid, "values": "_x75 1x4"}],
        "promql_expr_test": [
            {"expr": expr, "eval_time": "80m", "exp_samples": [{"labels": labels, "value": value}]}
            for expr, labels, value in expected
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"tests": [test]}))
    promtool(promtool_path, "test", "rules", file)


def test_the_chart_puts_them_where_grafana_looks() -> None:
    """One ConfigMap each, with the label and annotations of the values, and the file as it is."""
    values = {"enabled": True, "label": "dash", "labelValue": "yes", "annotations": {"folder": "x"}}
    rendered = render(values={"monitoring": {"dashboards": values}})
    for name in NAMES:
        found = rendered.one("ConfigMap", f"-dashboard-{name}")
        assert found["metadata"]["labels"]["dash"] == "yes"
        assert found["metadata"]["annotations"] == {"folder": "x"}
        assert json.loads(found["data"][f"gpushare-{name}.json"]) == load(name)


def test_they_are_not_made_by_default() -> None:
    """Without the value there is no ConfigMap of a dashboard."""
    names = [item["metadata"]["name"] for item in render().of("ConfigMap")]
    assert [name for name in names if "dashboard" in name] == []
