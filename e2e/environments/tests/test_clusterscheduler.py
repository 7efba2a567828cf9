"""kubelet probes the start of the cluster's own scheduler sooner, and as long as before."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from environments import clusterscheduler

PROBE = {"httpGet": {"path": "/healthz"}, "initialDelaySeconds": 10, "periodSeconds": 10}
KUBEADM = {
    "livenessProbe": {**PROBE, "failureThreshold": 8, "timeoutSeconds": 15},
    "name": "kube-scheduler",
    "startupProbe": {**PROBE, "failureThreshold": 24, "timeoutSeconds": 15},
}
"""The container as kubeadm 1.20 writes it, as far as it matters here."""
FOLDER = "/etc/kubernetes/manifests"
# docker exec NODE sh -ec SCRIPT, in a folder of the test.
DOCKER = """\
#!/bin/sh
exec sh -ec "$(printf '%s' "$5" | sed 's,{folder},{here},g')"
"""


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a node that is a folder here."""
    document = {"spec": {"containers": [KUBEADM]}}
    file = tmp_path / "kube-scheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o600)
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(folder=FOLDER, here=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return file


def container(manifest: Path) -> dict[str, Any]:
    """The one of the manifest."""
    found: dict[str, Any] = yaml.safe_load(manifest.read_text())["spec"]["containers"][0]
    return found


def patience(probe: dict[str, Any]) -> int:
    """Seconds that the container has until kubelet ends it."""
    seconds: int = probe["periodSeconds"] * probe["failureThreshold"]
    return seconds


def test_the_first_question_comes_sooner_and_the_last_when_it_did(manifest: Path) -> None:
    """Only the startup probe is another, and nobody else may read the file."""
    before = container(manifest)
    clusterscheduler.probe_early("node")
    after = container(manifest)
    probe = after["startupProbe"]
    assert (probe["initialDelaySeconds"], probe["periodSeconds"]) == (1, 2)
    assert patience(probe) == patience(before["startupProbe"])
    assert {**after, "startupProbe": {}} == {**before, "startupProbe": {}}
    assert manifest.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in manifest.parent.glob(".*")] == []


def test_kubeadm_gets_a_lease_that_a_leader_can_keep() -> None:
    """Renewing ends before the lease does, and tries come more often than that."""
    flags = json.loads(clusterscheduler.kubeadm_patches()[0])["scheduler"]["extraArgs"]
    seconds = {name.removeprefix("leader-elect-"): int(text[:-1]) for name, text in flags.items()}
    assert seconds["retry-period"] < seconds["renew-deadline"] < seconds["lease-duration"]
