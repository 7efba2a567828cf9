"""The alert rules: each fires in its case and in no other, and each has a page for the night."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from alertcases import (
    CASES,
    EXPIRY,
    FURTHER,
    HEALTHY,
    MINUTES,
    READY,
    SILENT,
    STILL_WELL,
    UP,
    WEBHOOK_READY,
    WEBHOOK_UP,
    always,
    elsewhere,
)
from charting import CHART, render
from typer.core import TyperGroup
from typer.main import get_command

from gpuinspect.commands.main import app

RULES = CHART / "alerts" / "gpushare.yaml"
RUNBOOKS = CHART.parents[1] / "docs" / "runbooks"
TOLD = {"summary", "description", "runbook_url", "dashboard_url"}
SEVERITIES = {
    "critical",
    "warning",
    "{{ if gt $value 0.0 }}warning{{ else }}critical{{ end }}",  # of a certificate by its expiry
}
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def rules() -> Iterator[dict[str, Any]]:
    """All alerts, in their order."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules()}


def block(name: str, series: Mapping[str, str], firing: Mapping[str, Mapping[str, str]]) -> Any:
    """One test of promtool: on a healthy cluster but for ``series`` exactly these fire."""
    samples = [
        {"alertname": alert, "alertstate": "firing", **ALERTS[alert]["labels"], **labels}
        for alert, labels in firing.items()
    ]
    found = {**HEALTHY, **series}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in found.items()],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": _series(labels), "value": 1} for labels in samples],
            }
        ],
    }


def _series(labels: Mapping[str, str]) -> str:
    inner = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    return f"ALERTS{{{inner}}}"


def promtool(program: Path, *words: str | Path) -> None:
    """Run it; its output is the failure."""
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_blocks(program: Path, folder: Path, *blocks: Any, rule_file: Path = RULES) -> None:
    """Have promtool try these."""
    file = folder / "test.yaml"
    content = {"rule_files": [str(rule_file)], "evaluation_interval": "1m", "tests": blocks}
    file.write_text(json.dumps(content))
    promtool(program, "test", "rules", file)


@pytest.mark.slow
def test_each_alert_fires_in_its_case_and_no_other_does(
    promtool_path: Path, tmp_path: Path
) -> None:
    """An alert that cannot fire is worse than none; one too many wakes for nothing."""
    blocks = [
        block(name, case.series, {name: case.labels, **case.also}) for name, case in CASES.items()
    ]
    blocks += [block(name, case.series, case.also) for name, case in FURTHER.items()]
    run_blocks(promtool_path, tmp_path, *blocks)


@pytest.mark.slow
def test_nothing_fires_while_all_is_well(promtool_path: Path, tmp_path: Path) -> None:
    """Nor where something only looks like trouble."""
    blocks = [block(name, series, {}) for name, series in {"healthy": {}, **STILL_WELL}.items()]
    run_blocks(promtool_path, tmp_path, *blocks)


@pytest.mark.slow
def test_an_expired_certificate_is_described_as_expired(
    promtool_path: Path, tmp_path: Path
) -> None:
    """Since when, as a positive duration; before that, when it expires."""
    case, alert = CASES["GpushareCertificateExpires"], ALERTS["GpushareCertificateExpires"]
    place = "The certificate in /etc/gpushare/tls of gpu-system/scheduler-0"
    minutes = {
        MINUTES - 10: ("critical", "A certificate has expired", f"{place} expired 10m 0s ago."),
        MINUTES + 10: (
            "warning",
            "A certificate expires within two weeks",
            f"{place} expires in 10m 0s.",
        ),
    }
    for end, (severity, summary, description) in minutes.items():
        tried = block(f"ends at minute {end}", {EXPIRY: always(end * 60)}, {})
        links = {key: alert["annotations"][key] for key in ("runbook_url", "dashboard_url")}
        tried["alert_rule_test"] = [
            {
                "eval_time": f"{MINUTES}m",
                "alertname": "GpushareCertificateExpires",
                "exp_alerts": [
                    {
                        "exp_labels": {**case.labels, "severity": severity},
                        "exp_annotations": {
                            "summary": summary,
                            "description": description,
                            **links,
                        },
                    }
                ],
            }
        ]
        del tried["promql_expr_test"]
        run_blocks(promtool_path, tmp_path, tried)


@pytest.mark.slow
def test_a_release_without_a_target_is_not_hidden_by_another(
    promtool_path: Path, tmp_path: Path
) -> None:
    """The targets of a release in another namespace are no targets of this one."""
    values = {"monitoring": {"enabled": True}}
    (resource,) = render(values=values).of("PrometheusRule")
    rules_file = tmp_path / "rules.yaml"
    rules_file.write_text(json.dumps(resource["spec"]))
    silent = dict.fromkeys(HEALTHY, SILENT)
    elsewhere_up = (elsewhere(each) for each in (READY, UP, WEBHOOK_READY, WEBHOOK_UP))
    tried = block("no pods", {**silent, **dict.fromkeys(elsewhere_up, always(1))}, {})
    labels = {"severity": "critical", "alertstate": "firing", "namespace": "gpu-system"}
    tried["promql_expr_test"][0]["exp_samples"] = [
        {"labels": _series({"alertname": name, **labels}), "value": 1}
        for name in ("GpushareExtenderDown", "GpushareWebhookDown")
    ]
    run_blocks(promtool_path, tmp_path, tried, rule_file=rules_file)


@pytest.mark.slow
def test_every_alert_is_silent_without_any_target_but_those_for_that(
    promtool_path: Path, tmp_path: Path
) -> None:
    """Where nothing at all is scraped, two alerts fire and two dozen do not echo them."""
    nothing = dict.fromkeys(HEALTHY, SILENT)
    firing: dict[str, dict[str, str]] = {"GpushareExtenderDown": {}, "GpushareWebhookDown": {}}
    run_blocks(promtool_path, tmp_path, block("nothing", nothing, firing))


@pytest.mark.slow
def test_promtool_accepts_what_the_chart_installs(promtool_path: Path, tmp_path: Path) -> None:
    """The ConfigMap is a rule file, and the PrometheusRule holds the same groups."""
    values = {"monitoring": {"enabled": True, "alerts": {"configMap": True}}}
    rendered = render(values=values)
    text = rendered.one("ConfigMap", "-alerts")["data"]["gpushare.rules.yaml"]
    (tmp_path / "rules.yaml").write_text(text)
    promtool(promtool_path, "check", "rules", tmp_path / "rules.yaml")
    (resource,) = rendered.of("PrometheusRule")
    unlinked = re.sub(r"\n +dashboard_url: .*", "", RULES.read_text())
    missing = 'label_replace(vector(0), "namespace", "gpu-system", "", "") unless on () up{\\1,'
    own = re.sub(
        r"vector\(0\) unless on \(\) up\{([^}]*)", missing + 'namespace="gpu-system"', unlinked
    )
    assert resource["spec"] == yaml.safe_load(text) == yaml.safe_load(own)


def test_each_alert_has_a_case_and_each_case_an_alert() -> None:
    """No rule is left untried."""
    assert len(ALERTS) >= 12
    assert set(CASES) == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_all_its_fields(name: str) -> None:
    """Severity, what is wrong, what it means, where to read on; labels it speaks of are there."""
    rule, case = ALERTS[name], CASES[name]
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == TOLD
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
    spoken = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    assert spoken <= set(case.labels)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_page(name: str) -> None:
    """Meaning, impact, diagnosis with commands, mitigation; named as the alert is."""
    lines = (RUNBOOKS / f"{name}.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("# ")] == [f"# {name}"]
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS
    assert any(line.startswith("$ ") for line in lines), "no command to run"


def test_pages_call_our_command_as_it_can_be_called() -> None:
    """At night nobody wants to learn that a flag has another name by now."""
    calls = {
        line.removeprefix("$ gpushare ").strip()
        for page in RUNBOOKS.glob("*.md")
        for line in page.read_text().splitlines()
        if line.startswith("$ gpushare ")
    }
    assert len(calls) >= 5
    for call in sorted(calls):
        words = call.split()
        command = get_command(app)
        while isinstance(command, TyperGroup):
            command = command.get_command(typer.Context(command), words.pop(0))
        known = {flag for option in command.params for flag in option.opts}
        assert {word for word in words if word.startswith("-")} <= known, call


def test_no_page_is_without_an_alert() -> None:
    """A page that nothing leads to is out of date; the index lists them all."""
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"index"} == set(ALERTS)
    index = (RUNBOOKS / "index.md").read_text()
    assert re.findall(r"\]\((\w+)\.md\)", index) == list(ALERTS)


@pytest.mark.slow
def test_pages_can_be_somewhere_else() -> None:
    """With an address in the values every alert leads there."""
    url = "https://wiki.example.org/gpu/$1/{alert}/"
    values = {"monitoring": {"enabled": True, "alerts": {"runbookUrl": url}}}
    (resource,) = render(values=values).of("PrometheusRule")
    for group in resource["spec"]["groups"]:
        for rule in group["rules"]:
            wanted = url.replace("{alert}", rule["alert"])
            assert rule["annotations"]["runbook_url"] == wanted


@pytest.mark.slow
def test_alerts_link_to_the_dashboard_where_its_address_is_set() -> None:
    """A page that the dashboard has; without an address the annotation is left out."""
    alerts = {"alerts": {"dashboardUrl": "https://gpu.example.org/$1/"}}
    (linked,) = render(values={"monitoring": {"enabled": True, **alerts}}).of("PrometheusRule")
    (plain,) = render(values={"monitoring": {"enabled": True}}).of("PrometheusRule")
    urls = [
        rule["annotations"]["dashboard_url"]
        for group in linked["spec"]["groups"]
        for rule in group["rules"]
    ]
    assert len(urls) == len(ALERTS)
    pages = re.compile(
        r"https://gpu\.example\.org/\$1/(pods|nodes/\{\{ \$labels\.node \}\}|"
        r"pods/\{\{ \$labels\.exported_namespace \}\}/\{\{ \$labels\.exported_pod \}\})?"
    )
    assert [url for url in urls if not pages.fullmatch(url)] == []
    assert "dashboard_url" not in str(plain)


@pytest.mark.slow
def test_without_a_webhook_no_alert_misses_it() -> None:
    """The rule that fires where no webhook is scraped is left out; all others stay."""
    values = {
        "webhook": {"enabled": False},
        "monitoring": {"enabled": True, "alerts": {"configMap": True}},
    }
    rendered = render(values=values)
    (resource,) = rendered.of("PrometheusRule")
    text = rendered.one("ConfigMap", "-alerts")["data"]["gpushare.rules.yaml"]
    assert yaml.safe_load(text) == resource["spec"]
    installed = [rule["alert"] for group in resource["spec"]["groups"] for rule in group["rules"]]
    assert installed == [name for name in ALERTS if name != "GpushareWebhookDown"]


@pytest.mark.slow
def test_rules_can_be_left_out() -> None:
    """Nothing is made by default, and monitors can be had without rules."""
    assert render().of("PrometheusRule") == []
    values = {"monitoring": {"enabled": True, "alerts": {"enabled": False}}}
    rendered = render(values=values)
    assert rendered.of("PodMonitor")
    assert rendered.of("PrometheusRule") == []


def test_the_alert_of_errors_leaves_out_the_codes_that_the_plugin_ignores() -> None:
    """By default: a program of a tenant is no fault of the GPU for either."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    codes = "|".join(map(str, values["devicePlugin"]["ignoredXids"]))
    assert ALERTS["GpushareGpuErrors"]["expr"].count(f'xid!~"{codes}"') == 2
