"""The policy of the cluster's extender: read, reported in the answer, and overridden by a flag."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpukube.testing.plugin_pods import plugin_pod

POD = """
kind: Pod
metadata: {name: new}
spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 2}}}]}
"""
WHOLE = {"aliyun.com/gpu": "3", "aliyun.com/gpu-mem": "45", "aliyun.com/gpu-count": "3"}


def extender(
    cluster: FakeCluster, *args: str, name: str = "extender-0", **metadata: Any
) -> FakeCluster:
    """A pod of the chart's scheduler with the extender in it, called with these arguments."""
    labels = {"app.kubernetes.io/component": "scheduler"}
    boxes = [{"name": "kube-scheduler"}, {"name": "extender", "args": list(args)}]
    return cluster.pod(
        name,
        namespace="gpushare",
        metadata={"labels": labels, **metadata},
        spec={"containers": boxes},
    )


@pytest.fixture
def halves(cluster: FakeCluster) -> FakeCluster:
    """A node with two GPUs, the first partly used; a small pod on the second."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)]).pod("a", 6, node="n", index=0)
    return cluster.pod("b", 2, node="n", index=1)


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    """A pod of 2 units in a file."""
    path = tmp_path / "pod.yaml"
    path.write_text(POD)
    return str(path)


def whatif(run: Run, cluster: FakeCluster, manifest: str, *flags: str) -> Mapping[str, Any]:
    """The answer of whatif as JSON."""
    out = run("whatif", "-f", manifest, "-o", "json", *flags, on=cluster).out
    return dict(json.loads(out))


def test_whatif_places_by_the_policy_of_the_extender(
    run: Run, halves: FakeCluster, manifest: str
) -> None:
    """Spread on the extender means the emptier GPU, and the answer states where that was read."""
    extender(halves, "--port=12345", "--policy=spread")
    found = whatif(run, halves, manifest)
    assert found["items"][0]["gpus"] == {"1": 2}
    assert (found["policy"], found["policySource"]) == (
        "spread",
        "set on pod gpushare/extender-0",
    )
    err = run("whatif", "-f", manifest, on=halves).err
    assert "note: policy spread, topology best-effort (set on pod gpushare/extender-0)\n" in err


@pytest.mark.parametrize(("flags", "noted"), [((), True), (("--unhealthy-configmaps",), False)])
def test_a_config_map_that_the_extender_does_not_read_is_noted(
    run: Run, halves: FakeCluster, manifest: str, flags: tuple[str, ...], *, noted: bool
) -> None:
    """Its GPUs count as unhealthy in the answer, and the extender places pods there."""
    metadata = {"name": "unhealthy-gpu-n", "namespace": "kube-system"}
    halves.add({"kind": "ConfigMap", "metadata": metadata, "data": {"gpus": "0,1"}})
    words = "GPUs of ConfigMap unhealthy-gpu-n count as unhealthy here, but the extender places"
    found = run("whatif", "-f", manifest, on=halves)
    assert (found.code, words in found.err) == (1, False)  # no extender contradicts the answer
    extender(halves, *flags)
    assert (words in run("whatif", "-f", manifest, on=halves).err) == noted
    halves.pod("waits", 2)
    assert (words in run("explain", "pod", "waits", on=halves).err) == noted


def test_the_flag_overrides_the_extender(run: Run, halves: FakeCluster, manifest: str) -> None:
    """``--policy`` is for what would be if the extender were configured otherwise."""
    extender(halves, "--policy=spread")
    found = whatif(run, halves, manifest, "--policy=binpack")
    assert found["items"][0]["gpus"] == {"0": 2}
    assert (found["policy"], found["policySource"]) == ("binpack", "given by --policy")


def test_without_an_extender_the_default_is_assumed_and_reported(
    run: Run, halves: FakeCluster, manifest: str
) -> None:
    """Nothing defines the policy: the answer states what it assumes."""
    found = whatif(run, halves, manifest)
    assert (found["policy"], found["policySource"]) == (
        "binpack",
        "assumed: no extender was found",
    )


@pytest.mark.parametrize(
    ("args", "policy"),
    [
        (("--policy", "spread"), "spread"),
        (("--policy=binpack", "--policy=fragmentation"), "fragmentation"),
        (("--policy=unheard",), "binpack"),
        (("policy=spread", "--log-level=debug"), "binpack"),
    ],
)
def test_arguments_are_read_as_the_extender_reads_them(
    run: Run, halves: FakeCluster, manifest: str, args: tuple[str, ...], policy: str
) -> None:
    """Both spellings count, the last of a repeated flag holds, and a name must exist."""
    extender(halves, *args)
    assert whatif(run, halves, manifest)["policy"] == policy


def test_extenders_that_differ_are_reported(run: Run, halves: FakeCluster, manifest: str) -> None:
    """During an upgrade, or with a pod that only looks like one, the oldest counts."""
    extender(halves, "--policy=spread", creationTimestamp="2026-01-02T00:00:00Z")
    extender(halves, "--policy=binpack", name="other", creationTimestamp="2026-01-03T00:00:00Z")
    found = whatif(run, halves, manifest)
    assert (found["policy"], found["policySource"]) == (
        "spread",
        "set on pod gpushare/extender-0; extenders differ",
    )


def webhook(namespace: str) -> dict[str, Any]:
    """The chart's webhook, whose Service is in this namespace."""
    service = {"name": "gpushare-webhook", "namespace": namespace}
    hooks = [{"name": "w", "clientConfig": {"service": service}}]
    metadata = {"name": "gpushare-webhook"}
    return {"kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": hooks}


@pytest.mark.parametrize("shown_by", [webhook("gpushare"), plugin_pod("plugin-n", "n")])
def test_a_tenants_pod_that_looks_like_an_extender_is_not_read(
    run: Run, halves: FakeCluster, manifest: str, shown_by: dict[str, Any]
) -> None:
    """Older, ready and on a node: the webhook's Service and the plugins show the namespace."""
    halves.add(shown_by)
    extender(halves, "--policy=binpack", creationTimestamp="2026-01-02T00:00:00Z")
    looking_like_an_extender(halves, "--policy=spread")
    found = whatif(run, halves, manifest)
    assert (found["policy"], found["policySource"]) == (
        "binpack",
        "set on pod gpushare/extender-0",
    )


def looking_like_an_extender(cluster: FakeCluster, *args: str, **fields: Any) -> None:
    """A pod of a tenant, older than the extender."""
    labels = {"app.kubernetes.io/component": "extender"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster.pod(
        "x",
        namespace="tenant",
        metadata={"labels": labels, "creationTimestamp": "2025-01-01T00:00:00Z"},
        spec={"containers": [{"name": "extender", "args": list(args)}]},
        **{"node": "n", "status": ready, **fields},
    )


def test_without_plugins_and_webhook_an_extender_that_is_ready_counts_first(
    run: Run, halves: FakeCluster, manifest: str
) -> None:
    """Then one on a node; a pod that waits, or never becomes ready, comes after both."""
    extender(halves, "--policy=binpack", creationTimestamp="2026-01-02T00:00:00Z")
    halves.items[-1]["spec"]["nodeName"] = "n"
    looking_like_an_extender(halves, "--policy=spread", node="", status={})
    source = whatif(run, halves, manifest)["policySource"]
    assert source == "set on pod gpushare/extender-0; extenders differ"
    halves.items[-1]["spec"]["nodeName"] = "n"
    halves.items[-2]["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert whatif(run, halves, manifest)["policy"] == "binpack"


@pytest.mark.parametrize("text", ["9" * 5000, "-1", str(2**31), "x"])
@pytest.mark.parametrize(
    "flag", ["candidates", "percentage-of-nodes", "burst-pods", "policy", "topology-policy"]
)
def test_no_flag_of_a_pod_ends_the_command(
    run: Run, halves: FakeCluster, manifest: str, flag: str, text: str
) -> None:
    """A value that is out of range is none."""
    extender(halves)
    looking_like_an_extender(halves, f"--{flag}={text}")
    assert whatif(run, halves, manifest)["policy"] == "binpack"


def test_pods_that_are_no_extender_say_nothing(
    run: Run, halves: FakeCluster, manifest: str
) -> None:
    """One that has ended, is being deleted, or has no such container."""
    extender(halves, "--policy=spread", name="leaving", deletionTimestamp="2026-01-02T00:00:00Z")
    extender(halves, "--policy=spread", name="done")
    halves.items[-1]["status"]["phase"] = "Failed"
    extender(halves, "--policy=spread", name="bare")
    halves.items[-1]["spec"]["containers"].pop()
    assert whatif(run, halves, manifest)["policySource"] == "assumed: no extender was found"


def test_explain_reads_the_policy_of_the_extender(run: Run, halves: FakeCluster) -> None:
    """Why a pod sits on its GPU is judged by the policy that placed it."""
    extender(halves, "--policy=spread")
    out = run("explain", "pod", "b", on=halves).out
    assert "spread would choose the same again: the emptiest GPU that fits" in out
    assert "Policy:     spread, topology best-effort (set on pod gpushare/extender-0)" in out
    other = run("explain", "pod", "b", "--policy=binpack", on=halves).out
    assert "binpack would choose 2 GiB on GPU 0 of node n now" in other
    assert run("explain", "pod", "b", "--policy=best", on=halves).code == 2


def test_explain_reads_the_topology_policy_of_the_extender(run: Run, cluster: FakeCluster) -> None:
    """Whole GPUs are judged by the extender's choice of several GPUs."""
    cluster.node("n", gpus=[Gpu(15)] * 3, resources=WHOLE)
    placed = {"ALIYUN_COM_GPU_GROUP": "0,1"}
    cluster.pod("w", node="n", annotations=placed, limits={"aliyun.com/gpu": "2"})
    extender(cluster, "--topology-policy=simple")
    out = run("explain", "pod", "w", on=cluster).out
    assert "simple (the default) would choose the same of the 3 GPUs" in out


SETS = "/etc/gpushare/topology/sets.json"


def mounting(cluster: FakeCluster, text: str, *, namespace: str = "gpushare") -> FakeCluster:
    """An extender with the static policy that mounts sets of a ConfigMap, as the chart does."""
    extender(cluster, "--topology-policy=static", f"--topology-config={SETS}")
    spec = cluster.items[-1]["spec"]
    spec["containers"][1]["volumeMounts"] = [
        {"name": "tls", "mountPath": "/etc/gpushare/tls"},
        {"name": "topology", "mountPath": "/etc/gpushare/topology"},
    ]
    spec["volumes"] = [
        {"name": "tls", "secret": {"secretName": "t"}},
        {"name": "topology", "configMap": {"name": "gpushare-topology"}},
    ]
    metadata = {"name": "gpushare-topology", "namespace": namespace}
    cluster.items.append({"kind": "ConfigMap", "metadata": metadata, "data": {"sets.json": text}})
    return cluster


@pytest.fixture
def typed(cluster: FakeCluster) -> FakeCluster:
    """A node of the type "box" with three exclusive GPUs."""
    cluster.node("n", gpus=[Gpu(15)] * 3, resources=WHOLE)
    cluster.items[-1]["metadata"]["annotations"]["NODE_TYPE"] = "box"
    return cluster


def test_whatif_chooses_among_the_configured_sets(
    run: Run, typed: FakeCluster, tmp_path: Path
) -> None:
    """The chart's ConfigMap of static sets decides which GPUs go together."""
    mounting(typed, '{"box": {"2": [[2, 1]]}}')
    path = tmp_path / "pod.yaml"
    path.write_text(POD.replace("gpu-mem: 2", "gpu: 2"))
    found = whatif(run, typed, str(path))
    assert found["items"][0]["exclusiveGpus"] == [2, 1]
    assert found["policySource"].endswith("; sets of ConfigMap gpushare/gpushare-topology")


@pytest.mark.parametrize(
    ("text", "namespace"), [("{", "gpushare"), ('{"box": {"2": [[2, 1]]}}', "tenant")]
)
def test_sets_that_cannot_be_read_are_reported(
    run: Run, typed: FakeCluster, manifest: str, text: str, namespace: str
) -> None:
    """Broken text, or a ConfigMap of the same name in another namespace, changes nothing."""
    mounting(typed, text, namespace=namespace)
    source = whatif(run, typed, manifest)["policySource"]
    assert source == "set on pod gpushare/extender-0; its configured sets cannot be read"
