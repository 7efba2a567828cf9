"""What rules ask for is what programs publish."""

import re

import metricpage
import pytest
import yaml
from charting import CHART, render
from queries import metrics_of

pytestmark = pytest.mark.slow

RULES = CHART / "alerts" / "gpushare.yaml"


def test_every_metric_has_words_and_a_good_name() -> None:
    """Whoever reads /metrics learns what each is; a counter ends in _total, seconds in _seconds."""
    for metric in (*metricpage.extender(), *metricpage.plugin()):
        assert len(metric.meaning.split()) >= 3, metric
        assert metric.name.startswith("gpushare_"), metric
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('sum by (a, b) (rate(x_total{job="y(z)"}[5m] offset 15m)) > 14 * 86400', {"x_total"}),
        ("max(a) == 0 and on (node) group_left () b unless c", {"a", "b", "c"}),
        ('label_replace(up, "gpu", "$1", "card", "(.+)") or vector(0)', {"up"}),
        ("time() - a:b:c[$__rate_interval]", {"a:b:c"}),
    ],
)
def test_names_of_metrics_are_found_in_queries(expression: str, expected: set[str]) -> None:
    """No function, label, keyword or duration is taken for a metric."""
    assert metrics_of(expression) == expected


def test_rules_ask_only_for_metrics_that_exist() -> None:
    """A rule on a metric that nobody publishes could never fire, and nobody would notice."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    used = {
        name for group in groups for rule in group["rules"] for name in metrics_of(rule["expr"])
    }
    assert len(used) > 20
    assert used <= metricpage.known()


def test_rules_ask_only_for_jobs_that_the_monitors_make() -> None:
    """A job of another name would leave every rule on it silent."""
    values = {"monitoring": {"enabled": True}, "webhook": {"enabled": True}}
    rendered = render(values=values)
    made = {
        relabeling["replacement"]
        for item in (*rendered.of("PodMonitor"), *rendered.of("ServiceMonitor"))
        for end in item["spec"].get("podMetricsEndpoints") or item["spec"]["endpoints"]
        for relabeling in end["relabelings"]
        if relabeling["targetLabel"] == "job"
    }
    used = set(re.findall(r'job=~?"([^"]+)"', RULES.read_text()))
    assert len(used) >= 4
    for pattern in used:
        assert any(re.fullmatch(pattern, job) for job in made), pattern
    assert len(made) == 4
