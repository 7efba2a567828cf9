"""The guide to the right size shows the table of idle pods as the command prints it."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakeapiserver import FakeApiServer
from invoking import Run
from test_memory_in_use import path, plugin

from gpuinspect.terminal import ages

DOCS = Path(__file__).parents[3] / "docs"
NOW = datetime(2026, 11, 26, 10, tzinfo=UTC)
FENCE = re.compile(
    r'^```text title="gpushare (?P<command>[^"]+)"\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)
USED = {"chat-6d9f7c5b8-q4x7t": 0.0, "summarize-5c8d7f9b4-m2k8w": 30.0}
"""Hours for which the pods of the example have been idle, in the order of their GPUs."""


def server() -> FakeApiServer:
    """The cluster of the example, and the plugin of its node."""
    items = json.loads((DOCS / "examples" / "sizes.json").read_text())["items"]
    of_kind = {kind: [o for o in items if o["kind"] == kind] for kind in ("Node", "Pod")}
    lists = {"/api/v1/nodes": of_kind["Node"], "/api/v1/pods": [*of_kind["Pod"], plugin("gpu-a")]}
    made = FakeApiServer(lists, page=100)
    gpus = []
    for index, (name, hours) in enumerate(USED.items()):
        since = (NOW - timedelta(hours=hours)).timestamp() if hours else 0
        named = {"namespace": "research", "name": name, "containers": ["main"]}
        row = {**named, "usedBytes": 0, "idleSince": since}
        gpu = {"index": index, "uuid": f"GPU-gpu-a-{index}", "usedBytes": 0}
        gpus.append({**gpu, "unattributedBytes": 0, "pods": [row]})
    known = {"apiVersion": "gpushare/v1", "kind": "NodeUsage", "node": "gpu-a"}
    made.objects[path("gpu-a")] = {**known, "measuredAt": NOW.timestamp(), "gpus": gpus}
    return made


def test_the_table_of_idle_pods_is_what_the_command_prints(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the file of the guide, with a pod that has been idle for 30 hours."""
    (found,) = FENCE.finditer((DOCS / "guides" / "right-size.md").read_text())
    monkeypatch.setattr(ages, "now", lambda: NOW)
    serving = server()
    with serving.serving():
        config = str(serving.kubeconfig(tmp_path))
        outcome = run(*found["command"].split(), "--kubeconfig", config)
    assert outcome.out == found["text"]
