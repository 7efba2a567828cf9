"""The recipes that scale pods by the use of their GPU shares: rules, queries and objects."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from charting import CHART
from schemas import NEWEST, validate
from test_alerts import promtool

RULES = CHART / "rules" / "gpushare.yaml"
PAGE = CHART.parents[1] / "docs" / "autoscaling-pods.md"
JOB = 'job="gpushare-device-plugin"'
GIB = 1 << 30
USED, BUSY = "pod:gpushare_used:ratio", "pod:gpushare_gpu_utilization:ratio"


def blocks() -> list[Any]:
    """The YAML of the page."""
    return [
        yaml.safe_load(text)
        for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ]


def of_kind(kind: str) -> Any:
    """The one object of a kind on the page."""
    (found,) = (block for block in blocks() if block.get("kind") == kind)
    return found


def of_pod(metric: str, node: str, gpu: int, name: str, instance: str = "a") -> str:
    """A series of a pod of the namespace ``models``."""
    place = f'{JOB},node="{node}",gpu="{gpu}",instance="{instance}"'
    return f'{metric}{{{place},exported_namespace="models",exported_pod="{name}"}}'


def series() -> dict[str, str]:
    """Three pods on two GPUs of two sizes: a quarter of both, half of one, an eighth of both.

    The use of the second GPU by the third pod is not known.
    """
    found = {
        of_pod("gpushare_pod_allocated_gpus", "n1", 0, "model-a"): "0.25x60",
        of_pod("gpushare_pod_allocated_gpus", "n1", 0, "model-a", "scraped-twice"): "0.25x60",
        of_pod("gpushare_pod_allocated_gpus", "n1", 1, "model-a"): "0.25x60",
        of_pod("gpushare_pod_allocated_gpus", "n1", 1, "model-b"): "0.5x60",
        of_pod("gpushare_pod_allocated_gpus", "n1", 0, "part"): "0.125x60",
        of_pod("gpushare_pod_allocated_gpus", "n1", 1, "part"): "0.125x60",
        of_pod("gpushare_pod_used_bytes", "n1", 0, "part"): f"{1 * GIB}x60",
        of_pod("gpushare_pod_used_bytes", "n1", 0, "model-a"): f"{1 * GIB}x60",
        of_pod("gpushare_pod_used_bytes", "n1", 1, "model-a"): f"{8 * GIB}x60",
        of_pod("gpushare_pod_used_bytes", "n1", 1, "model-b"): f"{4 * GIB}x60",
    }
    for gpu, (size, busy) in enumerate(((16, 20), (32, 60))):
        where = f'{JOB},node="n1",gpu="{gpu}",uuid="GPU-{gpu}"'
        found[f"gpushare_gpu_memory_bytes{{{where}}}"] = f"{size * GIB}x60"
        found[f"gpushare_gpu_units{{{where}}}"] = f"{size}x60"
        found[f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{gpu}"}}'] = f"{busy}x60"
    return found


def labels(name: str) -> str:
    """Those of a pod."""
    return f'{{exported_namespace="models", exported_pod="{name}"}}'


@pytest.mark.slow
def test_the_series_are_of_each_pod_over_all_its_gpus(promtool_path: Path, tmp_path: Path) -> None:
    """9 of 12 GiB are used by one pod, 4 of 16 GiB by the other; the busiest GPU counts.

    The third uses 1 of 2 GiB where that is known; its other 4 GiB may be used or not.
    """
    (trigger,) = of_kind("ScaledObject")["spec"]["triggers"]
    expected = {
        USED: [
            (f"{USED}{labels(name)}", part)
            for name, part in (("model-a", 0.75), ("model-b", 0.25), ("part", 0.5))
        ],
        BUSY: [(f"{BUSY}{labels(name)}", 0.6) for name in ("model-a", "model-b", "part")],
        trigger["metadata"]["query"]: [("{}", 1.2)],
    }
    tests = [
        {
            "expr": expr,
            "eval_time": "30m",
            "exp_samples": [{"labels": name, "value": value} for name, value in samples],
        }
        for expr, samples in expected.items()
    ]
    given = [{"series": name, "values": values} for name, values in series().items()]
    block = {"name": "pods", "interval": "1m", "input_series": given, "promql_expr_test": tests}
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [block]}
    (tmp_path / "test.yaml").write_text(json.dumps(content))
    promtool(promtool_path, "test", "rules", tmp_path / "test.yaml")


@pytest.mark.parametrize("version", ["1.26", NEWEST])
def test_the_autoscaler_of_the_page_is_valid(version: str) -> None:
    """``autoscaling/v2`` is served since 1.23."""
    validate(of_kind("HorizontalPodAutoscaler"), version)


def test_adapter_and_autoscaler_of_the_page_name_the_same_metric() -> None:
    """The adapter renames a series of the rules; the autoscaler reads it by the new name."""
    (rule,) = next(block for block in blocks() if "rules" in block)["rules"]["custom"]
    (metric,) = of_kind("HorizontalPodAutoscaler")["spec"]["metrics"]
    records = {r["record"] for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]}
    assert rule["seriesQuery"].partition("{")[0] in records
    assert set(rule["resources"]["overrides"]) == {"exported_namespace", "exported_pod"}
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
