"""The same scheduling cases on a cluster that is given: which cases, and where they run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from environments.environment import MachineGpu, UnavailableError
from environments.given import GivenEnvironment, gpu_nodes, is_given

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("selection", "settings", "given"),
    [
        ("e2e", {}, False),
        ("e2e and oldest", {}, False),
        ("gpu", {}, True),
        ("e2e", {"GPU_KUBECONFIG": "/x"}, True),
        ("e2e", {"GPU_KUBECONFIG": ""}, False),
        ("not gpu and not e2e", {}, False),
    ],
)
def test_the_selection_and_a_kubeconfig_choose_the_cluster(
    selection: str, settings: dict[str, str], *, given: bool
) -> None:
    """``pytest -m gpu`` never makes a cluster of its own."""
    assert is_given(selection, settings) is given


def test_without_a_kubeconfig_there_is_a_reason() -> None:
    """It becomes the reason of the skip."""
    with pytest.raises(UnavailableError, match="GPU_KUBECONFIG names no cluster with GPU nodes"):
        GivenEnvironment({})


def test_gpus_are_those_that_nodes_publish() -> None:
    """Nodes without an inventory have none."""
    inventory = {"version": 1, "unit": "GiB", "gpus": [{"index": 0, "uuid": "GPU-1", "units": 79}]}
    nodes: list[dict[str, object]] = [
        {"metadata": {"name": "a", "annotations": {"gpushare/inventory": json.dumps(inventory)}}},
        {"metadata": {"name": "b"}},
    ]
    assert gpu_nodes(nodes) == {"a": (MachineGpu(0, "GPU-1", 79),)}


@pytest.mark.slow
def test_the_gpu_suite_has_the_scheduling_cases_of_kind() -> None:
    """Both selections find them; cases that change nodes or the stack are not in the GPU suite."""
    found = {}
    for mark in ("gpu", "e2e"):
        line = ["pytest", "--collect-only", "-q", "-m", mark, "e2e/cases"]
        done = subprocess.run(
            [sys.executable, "-m", *line], cwd=ROOT, capture_output=True, text=True, check=True
        )
        found[mark] = {each for each in done.stdout.splitlines() if "::" in each}
    modules = {each.split("::")[0] for each in found["gpu"]}
    names = ("agreement", "queueing", "sharing", "topology")
    assert modules == {f"e2e/cases/test_{name}.py" for name in names}
    assert found["gpu"] < found["e2e"]
