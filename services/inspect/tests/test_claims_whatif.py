"""``gpushare whatif`` for pods whose GPUs are requested by claims, on nodes that offer claims."""

import json
from pathlib import Path
from typing import Any

import pytest
from claimobjects import (
    allocated,
    claim,
    device,
    device_class,
    exclusive_class,
    request,
    resource_slice,
    template,
    uses,
)
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpucore.wire.names import LABEL_PLACEMENT, LABEL_REQUIRE_WHOLE, REQUIRE_WHOLE_DEVICE
from gpucore.workload.history import FEWEST_PODS

NOTHING: dict[str, str] = {}
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: eight}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpushare, capacity: {requests: {memory: 8Gi, compute: 10}}}
---
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: eight}]
      containers:
      - {name: model, resources: {claims: [{name: gpu}]}}
"""
EXCLUSIVE = """
apiVersion: v1
kind: Pod
metadata: {name: pair}
spec:
  containers:
  - name: model
    resources: {limits: {aliyun.com/gpu: 2}}
"""


@pytest.fixture
def shared(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 15 GiB offered as claims, the first with a share of 7 GiB; and a class."""
    cluster.node("n1", resources=NOTHING)
    cluster.add(resource_slice("n1", [device(0, 15), device(1, 15)]))
    cluster.pod("a", node="n1").add(claim("a-gpu", allocated("n1", 0, "7Gi"), pods=["a"]))
    return cluster.add(device_class())


def test_claims_are_placed_in_the_order_of_the_slice(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """First fit by what claims hold; the third replica fits nowhere and ends with 1."""
    manifest.write_text(TEMPLATE + DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 1
    found = outcome.out.replace(" percent of compute", "%")
    lines = [" ".join(line.split()) for line in found.splitlines()]
    assert lines[1].startswith("web-0 n1 8 GiB on GPU 0")
    assert lines[2].startswith("web-1 n1 8 GiB on GPU 1")
    assert lines[3] == "web-2 - fits no node: 1 node: largest free block 7 GiB, requested 8"


def test_a_template_of_the_cluster_is_found(run: Run, shared: FakeCluster, manifest: Path) -> None:
    """It need not be in the file."""
    manifest.write_text(DEPLOYMENT)
    shared.add(template("eight", request("8Gi")))
    outcome = run("whatif", "-f", str(manifest), "--replicas", "1", "-o", "json", on=shared)
    [item] = json.loads(outcome.out)["items"]
    assert (item["node"], item["unit"], item["gpus"]) == ("n1", "GiB", {"0": 8})


SHARING = DEPLOYMENT.replace("resourceClaimTemplateName: eight", "resourceClaimName: model")
CLAIM = TEMPLATE.replace("ClaimTemplate", "Claim").replace("name: eight", "name: model")
CLAIM = CLAIM.replace("  spec:\n    devices", "  devices", 1)


def test_a_selector_that_is_an_error_for_one_gpu_places_no_pod(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """kube-scheduler gives up the pod, also where another node fits."""
    shared.node("n2", resources=NOTHING)
    other = device(0, 15)
    other["attributes"]["numaNode"] = {"int": 0}
    shared.add(resource_slice("n2", [other]))
    expression = "device.attributes['gpu.gpushare.io'].numaNode == 0"
    shared.add(template("eight", request("1Gi", selectors=[{"cel": {"expression": expression}}])))
    manifest.write_text(DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 1
    assert f"selector {expression} is an error for GPU 0" in " ".join(outcome.out.split())


def test_pods_that_name_one_claim_share_it(run: Run, shared: FakeCluster, manifest: Path) -> None:
    """The first pod decides where; a pod with a claim of its own finds the rest of the memory."""
    manifest.write_text(CLAIM + SHARING)
    outcome = run("whatif", "-f", str(manifest), "-o", "json", on=shared)
    assert outcome.code == 0, outcome.out
    items = json.loads(outcome.out)["items"]
    assert [(item["node"], item["gpus"]) for item in items] == [("n1", {"0": 8})] * 3
    own = DEPLOYMENT.replace("replicas: 3", "replicas: 2").replace("web", "own")
    manifest.write_text(CLAIM + SHARING + "---" + TEMPLATE + own)
    outcome = run("whatif", "-f", str(manifest), "-o", "json", on=shared)
    assert [item["node"] for item in json.loads(outcome.out)["items"]] == ["n1"] * 4 + [""]


def test_pods_that_name_an_allocated_claim_need_no_more(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """They go to the node of the claim, which has no room for another one."""
    shared.node("n2", resources=NOTHING)
    shared.add(resource_slice("n2", [device(0, 15)]))
    held = claim("model", allocated("n1", 1, "15Gi"), pods=["b"], spec=request("15Gi"))
    shared.pod("b", node="n1").add(held)
    manifest.write_text(SHARING)
    outcome = run("whatif", "-f", str(manifest), "-o", "json", on=shared)
    assert outcome.code == 0, outcome.out
    items = json.loads(outcome.out)["items"]
    assert [(item["node"], item["gpus"]) for item in items] == [("n1", {"1": 15})] * 3


def test_a_pod_cannot_use_claims_of_two_nodes(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """Each claim is on the node where it is allocated."""
    shared.node("n2", resources=NOTHING)
    shared.add(resource_slice("n2", [device(0, 15)]))
    shared.pod("b", node="n1").add(claim("model", allocated("n1", 1, "1Gi"), pods=["b"]))
    shared.pod("c", node="n2").add(claim("other", allocated("n2", 0, "1Gi"), pods=["c"]))
    both = "{name: gpu, resourceClaimName: model}, {name: more, resourceClaimName: other}"
    text = SHARING.replace("{name: gpu, resourceClaimName: model}", both)
    manifest.write_text(text.replace("replicas: 3", "replicas: 1"))
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 1
    assert "its claims are allocated on n1 and n2" in " ".join(outcome.out.split())
    manifest.write_text(SHARING.replace("kind: Deployment", "kind: DaemonSet"))
    outcome = run("whatif", "-f", str(manifest), on=shared)
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[1].startswith("web-n1 n1 1 GiB on GPU 1")
    assert lines[2] == "web-n2 - does not fit node n2: its claims are allocated on n1"


def test_a_missing_template_is_named(run: Run, shared: FakeCluster, manifest: Path) -> None:
    """With where it was looked for."""
    manifest.write_text(DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code != 0
    assert "ResourceClaimTemplate eight" in outcome.err
    assert "namespace default" in outcome.err


WHOLE = f"{LABEL_REQUIRE_WHOLE}: {REQUIRE_WHOLE_DEVICE}"
PLAIN = """
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: team}
spec:
  containers:
  - name: model
    resources: {limits: {aliyun.com/gpu-mem: 4}}
"""


def converting(operator: str, value: str) -> dict[str, Any]:
    """The chart's webhooks where one converts the pods of namespaces with, or without, a label."""
    excluded = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system"],
    }
    label = {"key": "gpushare/api", "operator": operator, "values": [value]}
    hooks = [
        {"name": name, "namespaceSelector": {"matchExpressions": [excluded, label]}}
        for name in ("pods.gpushare.io", "claims.pods.gpushare.io")
    ]
    metadata = {"name": "gpushare-webhook"}
    return {"kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": hooks}


@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        (("NotIn", "devices"), "unless namespace team has the label gpushare/api=devices"),
        (("In", "claims"), "if namespace team has the label gpushare/api=claims"),
    ],
)
def test_a_pod_that_the_webhook_converts_is_noted_and_its_claim_fits(
    run: Run, shared: FakeCluster, manifest: Path, rule: tuple[str, str], condition: str
) -> None:
    """Its shares fit no node that offers claims; the output of `gpushare convert` does."""
    shared.add(converting(*rule))
    manifest.write_text(PLAIN)
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 1
    note = " ".join(outcome.err.split())
    assert f"plain: {condition}, the webhook turns its request into a ResourceClaim" in note
    assert "evaluate the output of gpushare convert" in note
    manifest.write_text(run("convert", "-f", str(manifest), on=None).out)
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 0
    assert "ResourceClaim" not in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        EXCLUSIVE,
        EXCLUSIVE.replace("name: pair", f"name: pair, labels: {{{WHOLE}}}"),
        PLAIN.replace("gpu-mem: 4", "gpu-core.percentage: 4"),
        PLAIN.replace("namespace: team", "namespace: kube-system"),
    ],
)
def test_a_pod_that_the_webhook_leaves_as_it_is_has_no_such_note(
    run: Run, shared: FakeCluster, manifest: Path, text: str
) -> None:
    """Exclusive GPUs, a share of compute alone, and a namespace that the webhook excludes."""
    shared.add(converting("NotIn", "devices"))
    manifest.write_text(text)
    assert "ResourceClaim" not in run("whatif", "-f", str(manifest), on=shared).err


def test_without_the_converting_webhook_there_is_no_such_note(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """The value `webhook.claims` is off by default."""
    hooks = converting("NotIn", "devices")
    del hooks["webhooks"][1]
    shared.add(hooks)
    manifest.write_text(PLAIN)
    assert "ResourceClaim" not in run("whatif", "-f", str(manifest), on=shared).err


def test_added_nodes_offer_claims_too(run: Run, shared: FakeCluster, manifest: Path) -> None:
    """A copy of a node offers what the node offers, with nothing allocated."""
    manifest.write_text(TEMPLATE + DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), "--add-nodes=1", "--like=n1", on=shared)
    assert outcome.code == 0, outcome.out
    assert outcome.out.splitlines()[-1] == "3 of 3 pods fit"
    assert "likely" in outcome.out


def test_exclusive_gpus_fit_a_node_that_offers_claims(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """The class with the extended resource serves them: one GPU is in use, so two do not fit."""
    manifest.write_text(EXCLUSIVE)
    shared.add(exclusive_class())
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 1
    shared.node("n2", resources=NOTHING)
    shared.add(resource_slice("n2", [device(0, 15), device(1, 15)]))
    outcome = run("whatif", "-f", str(manifest), on=shared)
    assert outcome.code == 0, outcome.out
    assert "n2" in outcome.out


def test_exclusive_gpus_beside_device_plugins_are_not_taken_from_claims(
    run: Run, shared: FakeCluster, manifest: Path
) -> None:
    """Where a device plugin offers exclusive GPUs too, the extender places the pods, on these."""
    manifest.write_text(EXCLUSIVE)
    shared.add(exclusive_class()).node("n2", resources=NOTHING)
    shared.add(resource_slice("n2", [device(0, 15), device(1, 15)]))
    shared.node("n3", gpus=[Gpu(15)], resources={"aliyun.com/gpu": "1"})
    shared.pod("pair", phase="Pending", limits={"aliyun.com/gpu": "2"})
    assert run("whatif", "-f", str(manifest), on=shared).code == 1
    found = run("explain", "pod", "pair", "-n", "default", "-o", "json", on=shared)
    assert json.loads(found.out)["fits"] == []


def test_whatif_predicts_the_order_that_device_plugins_publish(
    run: Run, cluster: FakeCluster, manifest: Path
) -> None:
    """They order devices by the guess, whatever mix the extender has learned from the pods."""
    cluster.node(
        "n1", labels={LABEL_PLACEMENT: "fragmentation"}, resources={"cpu": "64", "memory": "64Gi"}
    )
    cluster.add(resource_slice("n1", [device(0, 16), device(1, 16)])).add(device_class())
    for index, memory in enumerate(("3Gi", "7Gi")):
        name = f"held-{index}"
        cluster.pod(name, node="n1").add(claim(name, allocated("n1", index, memory), pods=[name]))
    cluster.add(template("twelve", request("12Gi"))).add(template("all", request()))
    for number in range(FEWEST_PODS):
        usual = "twelve" if number % 10 else "all"
        cluster.pod(f"ended-{number}", phase="Succeeded", spec=uses(template_name=usual))
    manifest.write_text(TEMPLATE.replace("8Gi, compute: 10", "1Gi") + DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), "--replicas", "2", "-o", "json", on=cluster)
    items = json.loads(outcome.out)["items"]
    assert [item["gpus"] for item in items] == [{"0": 1}, {"0": 1}]
