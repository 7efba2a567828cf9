"""Shares in a cluster with real GPU nodes: ``gpushare verify`` with GPU_KUBECONFIG=<file>.

GPU_RUNTIME_CLASS names a RuntimeClass where the default runtime brings no driver. What needs the
host's processes or daemons of its own runs on a machine without Kubernetes only.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuprobe.checks.verdicts import ROWS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1200)]

COMMAND = Path(sys.executable).parent / "gpushare"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """The report of the cluster that GPU_KUBECONFIG leads to."""
    kubeconfig = os.environ.get("GPU_KUBECONFIG")
    if not kubeconfig:
        pytest.skip("GPU_KUBECONFIG names no cluster with GPU nodes")
    argv = [str(COMMAND), "verify", "--kubeconfig", kubeconfig, "-o", "json"]
    if runtime := os.environ.get("GPU_RUNTIME_CLASS"):
        argv += ["--runtime-class", runtime]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1100)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_the_row_holds_on_every_gpu(row: str, report: dict[str, Any]) -> None:
    """Skipped where it was measured nowhere, with the reasons."""
    rows = [each for gpu in report["items"] for each in gpu["rows"] if each["row"] == row]
    assert rows
    assert not [each for each in rows if each["verdict"] == "fail"]
    if all(each["verdict"] == "skip" for each in rows):
        pytest.skip("; ".join(sorted({each["seen"] for each in rows})))
