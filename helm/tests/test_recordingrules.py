"""The recording rules: GPU-hours by namespace, and dcgm-exporter's utilization by our labels."""

import json
from pathlib import Path
from typing import Any

import metricpage
import pytest
import yaml
from charting import CHART, NAMESPACE, render
from queries import metrics_of
from test_alerts import promtool

RULES = CHART / "rules" / "gpushare.yaml"
JOB = 'job="gpushare-device-plugin",node="n1"'
GIB = 1 << 30


def pod(metric: str, gpu: int, namespace: str, name: str, instance: str = "a") -> str:
    """A series of a pod."""
    labels = f'gpu="{gpu}",exported_namespace="{namespace}",exported_pod="{name}"'
    return f'{metric}{{{JOB},instance="{instance}",{labels}}}'


SERIES = {
    pod("gpushare_pod_allocated_gpus", 0, "red", "half"): "0.5x60 stale",
    pod("gpushare_pod_allocated_gpus", 0, "red", "half", "scraped-twice"): "0.5x60 stale",
    pod("gpushare_pod_allocated_gpus", 1, "red", "whole"): "1x120",
    pod("gpushare_pod_allocated_gpus", 0, "blue", "quarter"): "0.25x120",
    pod("gpushare_pod_used_bytes", 0, "red", "half"): f"{4 * GIB}x120",
    pod("gpushare_pod_used_bytes", 0, "blue", "quarter"): f"{2 * GIB}x120",
    pod("gpushare_pod_allocated_gpus", 2, "green", "half"): "0.5x120",
    pod("gpushare_pod_used_bytes", 2, "green", "half"): f"{2 * GIB}x120",
    f'gpushare_gpu_memory_bytes{{{JOB},gpu="0",uuid="GPU-a"}}': f"{16 * GIB}x120",
    f'gpushare_gpu_memory_bytes{{{JOB},gpu="2",uuid="GPU-c"}}': "0x120",
    f'gpushare_gpu_units{{{JOB},gpu="0",uuid="GPU-a"}}': "16x120",
    f'gpushare_gpu_units{{{JOB},gpu="1",uuid="GPU-b"}}': "16x120",
    'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-b",job="dcgm"}': "40x120",
}
"""Two hours of two GPUs: the pod ``half`` ends after the first of them. A third one has no size."""


def sample(name: str, labels: str, value: float) -> Any:
    """One expected sample."""
    return {"labels": f"{name}{{{labels}}}", "value": value}


def test_rules_ask_only_for_metrics_that_exist() -> None:
    """Of ours, of dcgm-exporter, and of the rules themselves."""
    rules = [r for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]]
    queried = {name for rule in rules for name in metrics_of(rule["expr"])}
    assert queried <= metricpage.known() | {rule["record"] for rule in rules}


@pytest.mark.slow
def test_hours_are_summed_by_namespace(promtool_path: Path, tmp_path: Path) -> None:
    """A GPU that a scrape shows twice counts once; a pod that ended no longer counts.

    Of a GPU that reports no memory, the used part is unknown, and not without bound.
    """
    red, blue, green = (f'exported_namespace="{name}"' for name in ("red", "blue", "green"))
    part = "pod:gpushare_used:ratio"
    hours, used = (
        "namespace:gpushare_allocated_gpu_hours:1h",
        "namespace:gpushare_used_gpu_hours:1h",
    )
    ratio = "gpu:gpushare_utilization:ratio"
    expected = {
        (hours, "60m"): [
            sample(hours, red, 1.5),
            sample(hours, blue, 0.25),
            sample(hours, green, 0.5),
        ],
        (hours, "120m"): [
            sample(hours, red, 1.0),
            sample(hours, blue, 0.25),
            sample(hours, green, 0.5),
        ],
        (part, "60m"): [
            sample(part, f'{red},exported_pod="half"', 0.5),
            sample(part, f'{blue},exported_pod="quarter"', 0.5),
        ],
        (used, "120m"): [sample(used, red, 0.25), sample(used, blue, 0.125)],
        (ratio, "60m"): [sample(ratio, 'gpu="1",node="n1",uuid="GPU-b"', 0.4)],
    }
    block = {
        "name": "hours",
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in SERIES.items()],
        "promql_expr_test": [
            {"expr": f"round({name}, 0.025)" if "hours" in name else name, "eval_time": at}
            | {"exp_samples": [_plain(one) if "hours" in name else one for one in samples]}
            for (name, at), samples in expected.items()
        ],
    }
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [block]}
    (tmp_path / "test.yaml").write_text(json.dumps(content))
    promtool(promtool_path, "test", "rules", tmp_path / "test.yaml")


def _plain(one: Any) -> Any:
    """A function drops the name of the metric."""
    return {**one, "labels": "{" + one["labels"].partition("{")[2]}


@pytest.mark.slow
def test_each_release_writes_of_its_own_device_plugins(promtool_path: Path, tmp_path: Path) -> None:
    """Samples that two releases in one Prometheus both wrote would be twice as many hours."""
    series = {
        pod("gpushare_pod_allocated_gpus", gpu, "red", name).replace("{", f'{{namespace="{name}",')
        for gpu, name in enumerate(("one", "two"))
    }
    rules = {"enabled": True, "recordingRules": {"enabled": True}}
    for name in ("one", "two"):
        rendered = render(values={"monitoring": rules}, namespace=name)
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps(rendered.one("PrometheusRule", "-recording-rules")["spec"]))
        labels = f'namespace="{name}",exported_namespace="red"'
        block = {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": each, "values": "1x120"} for each in series],
            "promql_expr_test": [
                {"expr": record, "eval_time": "100m", "exp_samples": [sample(record, labels, 1)]}
                for record in (
                    "namespace:gpushare_allocated_gpus:sum",
                    "namespace:gpushare_allocated_gpu_hours:1h",
                )
            ],
        }
        content = {"rule_files": [str(file)], "evaluation_interval": "1m", "tests": [block]}
        (tmp_path / "test.yaml").write_text(json.dumps(content))
        promtool(promtool_path, "test", "rules", tmp_path / "test.yaml")


@pytest.mark.slow
def test_the_chart_installs_them_where_requested() -> None:
    """As a PrometheusRule, or as a ConfigMap; neither by default."""
    rules = {"recordingRules": {"enabled": True, "configMap": True}}
    rendered = render(values={"monitoring": {"enabled": True, **rules}})
    text = rendered.one("ConfigMap", "-recording-rules")["data"]["gpushare-recording.rules.yaml"]
    spec = rendered.one("PrometheusRule", "-recording-rules")["spec"]
    assert spec == yaml.safe_load(text)
    own = f'namespace="{NAMESPACE}"'
    text = text.replace(f", {own}", "").replace(f"{{{own}}}", "")
    assert yaml.safe_load(text) == yaml.safe_load(RULES.read_text())
    plain = render(values={"monitoring": {"enabled": True}})
    assert not [o for o in plain.objects if "recording" in o["metadata"]["name"]]
