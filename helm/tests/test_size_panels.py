"""The dashboard of sizes shows what pods request and use, as promtool evaluates its queries."""

import json
from pathlib import Path
from typing import Any

import dashboards
import pytest
from test_alerts import promtool
from test_recordingrules import GIB, JOB, pod

DEPLOYMENT = "chat-7f8d9b5c4d-x2k9p"
SERIES = {
    pod("gpushare_pod_allocated_gpus", 0, "red", DEPLOYMENT): "0.5x1500",
    pod("gpushare_pod_allocated_gpus", 0, "red", DEPLOYMENT, "scraped-twice"): "0.5x1500",
    pod("gpushare_pod_allocated_gpus", 1, "red", "train-0"): "1x1500",
    pod("gpushare_pod_allocated_gpus", 0, "blue", "notebook"): "0.25x1500",
    pod("gpushare_pod_allocated_gpus", 0, "blue", "young"): "0.125x1500",
    pod("gpushare_pod_allocated_gpus", 1, "blue", "dark"): "0.125x1500",
    pod("gpushare_pod_allocated_gpus", 0, "blue", "part"): "0.0625x1500",
    pod("gpushare_pod_used_bytes", 0, "blue", "part"): "0x1500",
    pod("gpushare_pod_allocated_gpus", 1, "blue", "part"): "0.0625x1500",
    pod("gpushare_pod_allocated_gpus", 1, "green", "over"): "0.0625x1500",
    pod("gpushare_pod_used_bytes", 1, "green", "over"): f"{2 * GIB}x1500",
    pod("gpushare_pod_over_bytes", 1, "green", "over"): f"{GIB}x1500",
    pod("gpushare_pod_used_bytes", 0, "red", DEPLOYMENT): f"{6 * GIB} {2 * GIB}x1499",
    pod("gpushare_pod_used_bytes", 1, "red", "train-0"): f"{16 * GIB}x1500",
    pod("gpushare_pod_used_bytes", 0, "blue", "notebook"): f"{GIB}x1370 0x130",
    pod("gpushare_pod_used_bytes", 0, "blue", "young"): "_x1400 0x100",
    f'gpushare_gpu_unattributed_bytes{{{JOB},gpu="1",uuid="GPU-b"}}': f"{3 * GIB}x1500",
    f'gpushare_gpu_memory_bytes{{{JOB},gpu="0",uuid="GPU-a"}}': f"{16 * GIB}x1500",
    f'gpushare_gpu_memory_bytes{{{JOB},gpu="1",uuid="GPU-b"}}': f"{16 * GIB}x1500",
}
"""25 hours of two GPUs of 16 GiB: a Deployment, a StatefulSet, an idle notebook, an idle pod that
is younger than an hour at first, a pod of unknown use, one whose use of one of its GPUs is unknown,
and one that uses twice its share."""
RED, BLUE = 'exported_namespace="red"', 'exported_namespace="blue"'
GREEN = 'exported_namespace="green"'
OVER = f'{{{GREEN}, workload="over"}}'
CHAT, TRAIN = f'{{{RED}, workload="chat"}}', f'{{{RED}, workload="train"}}'
NOTEBOOK, YOUNG, PART = (f'{{{BLUE}, workload="{name}"}}' for name in ("notebook", "young", "part"))
EXPECTED: dict[str, list[dict[str, float]]] = {
    "Requested": [{"{}": 35 * GIB}],
    "Used": [{"{}": 20 * GIB}],
    "Not used": [{"{}": 13 * GIB}],
    "Used part": [{"{}": 20 / 32}],
    "Idle pods": [{"{}": 1}],
    "Use not known": [{"{}": 1}],
    "In use of no known pod": [{"{}": 3 * GIB}],
    "Beyond the share": [{"{}": GIB}],
    "Requested and used": [{"{}": 32 * GIB}, {"{}": 20 * GIB}],
    "Used part by namespace": [{f"{{{RED}}}": 0.75, f"{{{BLUE}}}": 0.0, f"{{{GREEN}}}": 2}],
    "Not used by namespace": [{f"{{{RED}}}": 6 * GIB, f"{{{BLUE}}}": 7 * GIB, f"{{{GREEN}}}": 0}],
    "Not used by workload": [
        {CHAT: 6 * GIB, TRAIN: 0, NOTEBOOK: 4 * GIB, YOUNG: 2 * GIB, PART: GIB, OVER: 0}
    ],
    "Highest use of a day by workload": [
        {CHAT: 0.25, TRAIN: 1, NOTEBOOK: 0.25, YOUNG: 0, PART: 0, OVER: 2}
    ],
    "Idle memory by pod": [{f'{{{BLUE}, exported_pod="notebook"}}': 4 * GIB}],
}
"""By title and query, at 24 hours and ten minutes."""
LOOK = "1450m"


def panels() -> dict[str, list[str]]:
    """Queries by the title of their panel."""
    content = json.loads((dashboards.FOLDER / "sizes.json").read_text())
    return {each["title"]: [one["expr"] for one in each["targets"]] for each in content["panels"]}


def test_every_panel_has_expected_figures() -> None:
    """A new one is evaluated below too."""
    counts = {title: len(queries) for title, queries in panels().items()}
    assert counts == {title: len(found) for title, found in EXPECTED.items()}


@pytest.mark.slow
def test_every_query_has_the_figures_of_its_pods(promtool_path: Path, tmp_path: Path) -> None:
    """A pod that two scrapes show counts once, one of unknown use is not waste."""
    queries = panels()
    cases = [
        {"expr": queries[title][number], "eval_time": LOOK, "exp_samples": _samples(values)}
        for title, found in EXPECTED.items()
        for number, values in enumerate(found)
    ]
    _evaluate(promtool_path, tmp_path, cases)


@pytest.mark.slow
def test_an_hour_must_have_passed(promtool_path: Path, tmp_path: Path) -> None:
    """A pod that was created less than an hour ago is not idle yet, and is then."""
    (query,) = panels()["Idle pods"]
    cases = [
        {"expr": query, "eval_time": at, "exp_samples": _samples({"{}": number})}
        for at, number in (("1400m", 0), ("1459m", 1), ("1461m", 2))
    ]
    _evaluate(promtool_path, tmp_path, cases)


def _samples(values: dict[str, float]) -> list[dict[str, Any]]:
    return [{"labels": labels, "value": value} for labels, value in values.items()]


def _evaluate(promtool_path: Path, folder: Path, cases: list[dict[str, Any]]) -> None:
    series = [{"series": name, "values": text} for name, text in SERIES.items()]
    block = {"interval": "1m", "input_series": series, "promql_expr_test": cases}
    (folder / "test.yaml").write_text(json.dumps({"evaluation_interval": "1m", "tests": [block]}))
    promtool(promtool_path, "test", "rules", folder / "test.yaml")
