"""What a file of ``gpushare snapshot`` leaves out, and that commands do not miss it."""

import stat
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

SECRET = "hunter2"
ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration": SECRET,
    "vault.example.com/token": SECRET,
    "gpushare/policy": "spread",
}
VOLUMES: list[dict[str, Any]] = [
    {"name": "csi", "csi": {"driver": "d", "volumeAttributes": {"password": SECRET}}},
    {"name": "host", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}},
]


def container(name: str) -> dict[str, Any]:
    """A container with a secret in each field that may have one."""
    call = {"exec": {"command": [SECRET]}, "httpGet": {"path": SECRET, "scheme": "HTTPS"}}
    return {
        "name": name,
        "command": [SECRET],
        "args": [f"--token={SECRET}"],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "envFrom": [{"prefix": "P_", "secretRef": {"name": SECRET}}],
        "livenessProbe": call,
        "readinessProbe": call,
        "startupProbe": call,
        "lifecycle": {"preStop": call},
        "resources": {"limits": {"aliyun.com/gpu-mem": "3"}},
        "securityContext": {"privileged": True},
    }


def with_secrets(cluster: FakeCluster) -> FakeCluster:
    """A pod with all kinds of containers and volumes."""
    kinds = ("containers", "initContainers", "ephemeralContainers")
    spec = {kind: [container(kind)] for kind in kinds} | {"volumes": VOLUMES}
    cluster.node("n", gpus=[Gpu(15)])
    cluster.pod("p", node="n", index=0, annotations=ANNOTATIONS, spec=spec)
    cluster.items[-1]["metadata"]["managedFields"] = [{"manager": SECRET}]
    return cluster


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_snapshot_has_no_secret_and_is_private(
    run: Run, cluster: FakeCluster, tmp_path: Path, mode: int | None
) -> None:
    """Only its owner may read the file, also where it replaces one that others could read."""
    path = tmp_path / "cluster.json"
    if mode is not None:
        path.touch(mode)
    outcome = run("snapshot", str(path), on=with_secrets(cluster))
    assert outcome.code == 0, outcome.err
    text = path.read_text()
    assert SECRET not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for kept in ("gpushare/policy", '"TOKEN"', "P_", "HTTPS", "/var/lib/kubelet", "privileged"):
        assert kept in text


def test_flags_of_the_extender_alone_are_kept(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Its policy decides what commands predict; another container of its pod has no arguments."""
    path = tmp_path / "cluster.json"
    boxes = [
        {"name": "extender", "args": ["--topology-policy=simple"]},
        {"name": "other", "args": [SECRET]},
    ]
    labels = {"app.kubernetes.io/component": "extender"}
    cluster.node("n", gpus=[Gpu(15)] * 2, resources={"aliyun.com/gpu": "2"})
    cluster.pod("e", namespace="gpushare", metadata={"labels": labels}, spec={"containers": boxes})
    cluster.pod("other", spec={"containers": [{"name": "extender", "args": [SECRET]}]})
    assert run("snapshot", str(path), on=cluster).code == 0
    assert SECRET not in path.read_text()
    found = run("gpu", "-d", "--snapshot", str(path)).out
    assert found == run("gpu", "-d", on=cluster).out
    assert found.startswith("gpu policy: simple\n")


def test_flags_of_the_clusters_kube_scheduler_are_kept(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Doctor reads them; a pod of another namespace with its label has no arguments."""
    path = tmp_path / "cluster.json"
    labels = {"component": "kube-scheduler"}
    box = {"name": "kube-scheduler", "command": ["kube-scheduler"]}
    for namespace, flag in (("kube-system", "--config=/etc/c.yaml"), ("team", f"--x={SECRET}")):
        spec = {"containers": [{**box, "args": [flag]}]}
        cluster.pod("s", namespace=namespace, metadata={"labels": labels}, spec=spec)
    assert run("snapshot", str(path), on=cluster).code == 0
    assert "--config=/etc/c.yaml" in path.read_text()
    assert SECRET not in path.read_text()


def test_annotations_of_another_prefix_are_kept(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """The prefix of the original annotations and the domain of the resources can be set."""
    path = tmp_path / "cluster.json"
    cluster.pod("p", annotations={"ACME_GPU_MEM_IDX": "0", "acme.io/x": "1", "ALIYUN_COM_X": "2"})
    flags = ("--annotation-prefix", "ACME", "--resource-domain", "acme.io")
    assert run("snapshot", str(path), *flags, on=cluster).code == 0
    text = path.read_text()
    assert "ACME_GPU_MEM_IDX" in text
    assert "acme.io/x" in text
    assert "ALIYUN_COM_X" not in text


def test_standard_output_can_be_a_pipe(run: Run, cluster: FakeCluster) -> None:
    """A device keeps its mode, and takes the file."""
    assert run("snapshot", "/dev/null", on=with_secrets(cluster)).code == 0
