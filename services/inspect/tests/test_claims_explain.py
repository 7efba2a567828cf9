"""``gpushare explain`` and ``gpushare pending`` for pods whose GPUs are requested by claims."""

import json
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
from doctorcluster import CONFIGURATION
from drawncluster import FakeCluster, Gpu
from invoking import Run

NOTHING: dict[str, str] = {}


@pytest.fixture
def shared(cluster: FakeCluster) -> FakeCluster:
    """Two GPUs of 15 GiB offered as claims, the first with a share of 9 GiB; and a class."""
    cluster.node("n1", resources=NOTHING)
    cluster.add(resource_slice("n1", [device(0, 15), device(1, 15, taint="NoSchedule")]))
    cluster.pod("a", node="n1").add(claim("a-gpu", allocated("n1", 0, "9Gi", "40"), pods=["a"]))
    return cluster.add(device_class())


def waits(cluster: FakeCluster, spec: dict[str, Any], **fields: Any) -> FakeCluster:
    """A pending pod ``w`` with a claim from a template."""
    cluster.add(template("t", spec))
    body = {"schedulerName": "default-scheduler", **uses(template_name="t"), **fields}
    return cluster.pod("w", phase="Pending", spec=body)


def explained(run: Run, cluster: FakeCluster, pod: str = "w") -> str:
    """The explanation in one line."""
    found = run("explain", "pod", pod, "-n", "default", on=cluster)
    assert found.code == 0, found.err
    return " ".join(found.out.split())


def test_a_pod_with_a_claim_has_its_gpu(run: Run, shared: FakeCluster) -> None:
    """Where, beside whom, and who chose it."""
    text = explained(run, shared, "a")
    assert (
        "9 GiB on GPU 0, 40 percent of compute on GPU 0 of node n1 (claim a-gpu)"
        in text.replace(" and ", ", ")
    )
    assert "GPU 0: alone; 6 of 15 GiB free" in text
    assert "the order of the node's ResourceSlice" in text


@pytest.mark.parametrize("index", [0, 7])
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_whose_node_does_not_offer_the_gpu_of_its_claim_has_a_remedy(
    run: Run, shared: FakeCluster, index: int, phase: str
) -> None:
    """The node changed to devices after the allocation, or lost the GPU: it prepares no claim."""
    shared.node("n2", gpus=[Gpu(15)])
    shared.pod("b", node="n2", phase=phase)
    shared.add(claim("b-gpu", allocated("n2", index, "9Gi"), pods=["b"]))
    helps = explained(run, shared, "b").partition("What would help:")[2]
    assert ("claim b-gpu has a GPU that the ResourceSlice of node n2 does not list" in helps) is (
        phase == "Pending"
    )
    assert "does not list" not in explained(run, shared, "a")


def test_a_pending_claim_has_figures_for_each_gpu(run: Run, shared: FakeCluster) -> None:
    """What is free, what is unhealthy, and what would help, the smallest step first."""
    text = explained(run, waits(shared, request("8Gi")))
    assert "8 GiB of one GPU (DeviceClass gpushare)" in text
    assert "InsufficientMemory largest free block 6 GiB, requested 8" in text
    assert "GPU 0 has 6 of 15 free, GPU 1 is unhealthy" in text
    helps = text.partition("What would help:")[2]
    assert "request at most 6 GiB: GPU 0 of node n1 has that much free" in helps
    assert "GPU 1 of node n1 would fit, but has the taint gpu.gpushare.io/unhealthy" in helps
    assert "it fits on GPU 0 of node n1 once default/a has ended" in helps
    assert "kube-scheduler does not preempt pods to free claims" in helps


def test_a_request_rounds_up_to_the_step(run: Run, shared: FakeCluster) -> None:
    """6.5 GiB need 7 of them."""
    assert "largest free block 6 GiB, requested 7" in explained(
        run, waits(shared, request("6656Mi"))
    )


def test_a_gpu_with_the_memory_names_the_reason(run: Run, cluster: FakeCluster) -> None:
    """One GPU lacks compute, the other memory: no sentence states that no GPU has the memory."""
    cluster.node("n1", resources=NOTHING)
    cluster.add(resource_slice("n1", [device(0, 15), device(1, 15)])).add(device_class())
    for gpu, size, core in ((0, "9Gi", "40"), (1, "14Gi", "10")):
        held = claim(f"held-{gpu}", allocated("n1", gpu, size, core), pods=[f"p{gpu}"])
        cluster.pod(f"p{gpu}", node="n1").add(held)
    text = explained(run, waits(cluster, request("4Gi", "70")))
    assert "InsufficientCore largest free block 60 percent, requested 70" in text
    assert "no GPU can take 4 GiB: GPU 0 has 60 of 100 percent" in text


def test_compute_is_judged_as_well(run: Run, shared: FakeCluster) -> None:
    """60 percent are left."""
    text = explained(run, waits(shared, request("2Gi", "70")))
    assert "GPU 0 has 60 of 100 percent of compute free, requested 70" in text


def test_a_claim_that_fits_is_reported(run: Run, shared: FakeCluster) -> None:
    """Then the scheduler's own message matters."""
    text = explained(run, waits(shared, request("6Gi")))
    assert "It fits on 1 node: n1" in text


def test_a_selector_that_excludes_all_gpus_is_named(run: Run, shared: FakeCluster) -> None:
    """With its text."""
    expression = "device.attributes['gpu.gpushare.io'].productName == 'NVIDIA A100'"
    spec = request("1Gi", selectors=[{"cel": {"expression": expression}}])
    text = explained(run, waits(shared, spec))
    assert "SelectorMismatch" in text
    assert f"selector {expression}" in text


def test_a_selector_that_is_an_error_for_one_gpu_fits_nowhere(
    run: Run, shared: FakeCluster
) -> None:
    """kube-scheduler ends its attempt for the pod at that node, whatever others have."""
    shared.node("n2", resources=NOTHING)
    other = device(0, 15)
    other["attributes"]["numaNode"] = {"int": 0}
    shared.add(resource_slice("n2", [other]))
    expression = "device.attributes['gpu.gpushare.io'].numaNode == 0"
    spec = request("1Gi", selectors=[{"cel": {"expression": expression}}])
    text = explained(run, waits(shared, spec))
    assert "it fits no node now" in text
    assert f"selector {expression} is an error for GPU 0 of node n1" in text
    assert 'device.attributes["gpu.gpushare.io"].?numaNode.orValue(-1) == 0' in text


def test_a_selector_that_is_not_understood_is_named_and_not_guessed(
    run: Run, shared: FakeCluster
) -> None:
    """It never makes a pod look impossible."""
    expression = "device.attributes['gpu.gpushare.io'].productName.startsWith('Tesla')"
    spec = request("1Gi", selectors=[{"cel": {"expression": expression}}])
    text = explained(run, waits(shared, spec))
    assert f"selector {expression} is not evaluated here" in text
    assert "It fits on 1 node" in text


def test_a_toleration_opens_an_unhealthy_gpu(run: Run, shared: FakeCluster) -> None:
    """As kube-scheduler reads it."""
    toleration = {"key": "gpu.gpushare.io/unhealthy", "operator": "Exists"}
    spec = request("8Gi", tolerations=[toleration])
    assert "It fits on 1 node: n1" in explained(run, waits(shared, spec))


def two_requests(**more: Any) -> dict[str, Any]:
    """A claim with two requests for 3 GiB."""
    spec = request("3Gi", **more)
    (first,) = spec["devices"]["requests"]
    spec["devices"]["requests"].append({**first, "name": "second"})
    return spec


def test_two_requests_of_a_claim_need_distinct_gpus_under_a_rule(
    run: Run, shared: FakeCluster
) -> None:
    """They fit one GPU, but not with distinctAttribute."""
    rule = [{"distinctAttribute": "gpu.gpushare.io/uuid"}]
    text = explained(run, waits(shared, two_requests(constraints=rule)))
    assert "DeviceConstraint distinctAttribute gpu.gpushare.io/uuid" in text


def test_two_requests_of_a_claim_fit_one_gpu_without_the_rule(
    run: Run, shared: FakeCluster
) -> None:
    """The other GPU is unhealthy."""
    assert "It fits on 1 node" in explained(run, waits(shared, two_requests()))


def test_one_request_for_two_gpus_does_not_fit_one(run: Run, shared: FakeCluster) -> None:
    """Without any rule, as kube-scheduler allocates them."""
    text = explained(run, waits(shared, request("3Gi", count=2)))
    assert "requested 2, 1 of 2 GPUs are free: GPU 1 is unhealthy" in text


def test_a_capacity_with_a_domain_is_named(run: Run, shared: FakeCluster) -> None:
    """No device has a capacity of this name, so the claim is never allocated."""
    spec = request()
    wanted = {"requests": {"gpu.gpushare.io/memory": "1Gi"}}
    spec["devices"]["requests"][0]["exactly"]["capacity"] = wanted
    text = explained(run, waits(shared, spec))
    assert "requested capacity gpu.gpushare.io/memory: GPUs have memory and compute" in text


@pytest.fixture
def used(cluster: FakeCluster) -> FakeCluster:
    """Two nodes with a GPU each; a pod uses a claim of all memory of the first."""
    for name in ("n1", "n2"):
        cluster.node(name, resources=NOTHING)
        cluster.add(resource_slice(name, [device(0, 15)]))
    held = claim("model", allocated("n1", 0, "15Gi"), pods=["a"], spec=request("15Gi"))
    return cluster.pod("a", node="n1").add(held).add(device_class())


def second(cluster: FakeCluster, **fields: Any) -> FakeCluster:
    """A pending pod ``w`` with the claim that pod ``a`` uses."""
    body = {"schedulerName": "default-scheduler", **uses("model"), **fields}
    return cluster.pod("w", phase="Pending", spec=body)


def test_a_claim_that_another_pod_uses_is_shared_on_its_node(run: Run, used: FakeCluster) -> None:
    """Its memory is allocated once, and the second pod can go nowhere else."""
    text = explained(run, second(used))
    assert "Requests: 15 GiB of one GPU" in text
    assert "It fits on 1 node: n1" in text
    assert "NodeAffinityMismatch claim model is allocated on node n1 n2" in text


def test_a_pod_whose_shared_claim_is_on_another_node_waits(run: Run, used: FakeCluster) -> None:
    """Free GPUs of the node that it selects are no help."""
    text = explained(run, second(used, nodeSelector={"kubernetes.io/hostname": "n2"}))
    assert "it fits no node now" in text
    assert "claim model is allocated on node n1" in text


def test_a_missing_template_is_the_reason(run: Run, shared: FakeCluster) -> None:
    """Nothing can be allocated before it exists."""
    body = uses(template_name="gpushare-mem-7")
    shared.add(template("other", request("1Gi")))
    shared.pod("w", phase="Pending", spec=body)
    text = explained(run, shared)
    assert "create ResourceClaimTemplate gpushare-mem-7 in namespace default" in text


def test_a_missing_class_is_the_reason(run: Run, shared: FakeCluster) -> None:
    """The chart creates it."""
    shared.items = [item for item in shared.items if item["kind"] != "DeviceClass"]
    shared.add(device_class("other", "device.driver == 'nic.example.com'"))
    assert "DeviceClass gpushare does not exist" in explained(run, waits(shared, request("1Gi")))


def test_rules_of_the_node_are_named_before_gpus(run: Run, shared: FakeCluster) -> None:
    """A nodeSelector that no node has."""
    text = explained(run, waits(shared, request("1Gi"), nodeSelector={"disk": "ssd"}))
    assert "NodeAffinityMismatch nodeSelector disk=ssd" in text


def test_nodes_without_slices_are_a_group(run: Run, shared: FakeCluster) -> None:
    """They do not offer GPUs as claims."""
    shared.node("n2", resources=NOTHING)
    assert "1 NoResourceSlice" in explained(run, waits(shared, request("8Gi")))


def test_exclusive_gpus_need_an_untouched_one(run: Run, shared: FakeCluster) -> None:
    """A claim without an amount takes all memory."""
    text = explained(run, waits(shared, request()))
    assert "all memory of one GPU" in text
    assert "InsufficientGpus" in text


def test_a_whole_gpu_is_not_compared_with_the_memory_of_another(
    run: Run, cluster: FakeCluster
) -> None:
    """GPUs of 8 and 15 GiB, both shared: neither 8 GiB nor less of them is what the pod needs."""
    cluster.add(device_class()).node("n1", resources=NOTHING)
    cluster.add(resource_slice("n1", [device(0, 8), device(1, 15)]))
    for index, memory in enumerate(("3Gi", "5Gi")):
        cluster.pod(f"h{index}", node="n1", spec=uses(f"c{index}"))
        cluster.add(claim(f"c{index}", allocated("n1", index, memory), pods=[f"h{index}"]))
    waits(cluster, request())
    found = json.loads(run("explain", "pod", "w", "-n", "default", "-o", "json", on=cluster).out)
    assert found["refusals"][0]["text"].endswith(
        "requested 1, 0 of 2 GPUs are free: GPU 0 has 5 of 8 free, GPU 1 has 10 of 15 free"
    )
    assert not [each for each in found["helps"] if "request at most" in each]


def test_less_memory_of_all_gpus_is_no_advice(run: Run, cluster: FakeCluster) -> None:
    """A claim of all GPUs that have 20 GiB is one of more GPUs where it requests less."""
    cluster.add(device_class()).node("n1", resources=NOTHING)
    cluster.add(resource_slice("n1", [device(0, 8, taint="NoSchedule"), device(1, 15)]))
    text = explained(run, waits(cluster, request("20Gi", allocationMode="All")))
    assert "request at most" not in text


def test_claims_of_other_drivers_are_not_ours(run: Run, shared: FakeCluster) -> None:
    """A pod with a NIC requests no GPU."""
    shared.add(device_class("nic", "device.driver == 'nic.example.com'"))
    waits(shared, request(device_class="nic"))
    assert "requests no GPU" in explained(run, shared)


def test_a_gpu_beside_a_device_of_another_driver(run: Run, shared: FakeCluster) -> None:
    """Ours is judged, the other is left to its driver."""
    shared.add(device_class("nic", "device.driver == 'nic.example.com'"))
    spec = request("1Gi")
    nic = {"name": "nic", "exactly": {"deviceClassName": "nic"}}
    spec["devices"]["requests"].append(nic)
    assert "It fits on 1 node" in explained(run, waits(shared, spec))


def nic_slice(node: str, *roots: str) -> dict[str, Any]:
    """Network devices of another driver, one for each PCIe root."""
    found = resource_slice(node, [])
    devices = [
        {"name": f"nic-{n}", "attributes": {"resource.kubernetes.io/pcieRoot": {"string": root}}}
        for n, root in enumerate(roots)
    ]
    found["metadata"]["name"] = f"{node}-nic"
    found["spec"] |= {"driver": "nic.example.com", "devices": devices}
    return found


@pytest.mark.parametrize(("root", "fits"), [("pci0000:00", True), ("pci0000:80", False)])
def test_a_constraint_with_another_driver_is_named(
    run: Run, cluster: FakeCluster, root: str, fits: bool
) -> None:
    """A share and a NIC of one PCIe root: the only GPU has another root than the NIC."""
    cluster.node("n1", resources=NOTHING).add(device_class())
    gpu = device(0, 15)
    gpu["attributes"]["resource.kubernetes.io/pcieRoot"] = {"string": "pci0000:00"}
    cluster.add(resource_slice("n1", [gpu])).add(nic_slice("n1", root))
    cluster.add(device_class("nic", "device.driver == 'nic.example.com'"))
    rule = {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    spec = request("3Gi", constraints=[rule])
    spec["devices"]["requests"].append({"name": "nic", "exactly": {"deviceClassName": "nic"}})
    text = explained(run, waits(cluster, spec))
    named = "matchAttribute resource.kubernetes.io/pcieRoot with devices of another driver"
    assert ("It fits on 1 node" in text) == fits
    assert (named in text) == (not fits)


def test_pending_lists_pods_with_claims(run: Run, shared: FakeCluster) -> None:
    """In the same columns."""
    found = run("pending", "-A", on=waits(shared, request("8Gi")))
    row = next(line for line in found.out.splitlines() if " w " in f" {line} ")
    assert "8 GiB of one GPU" in row
    assert "1 node: largest free block 6 GiB, requested 8" in row
    assert not [line for line in found.out.splitlines() if " a " in f" {line} "]


def test_pending_claims_that_fit_wait_for_their_scheduler(run: Run, shared: FakeCluster) -> None:
    """A node takes the claim: why others refuse it is not what the pod waits for."""
    shared.node("other", gpus=[Gpu(15)])
    waits(shared, request("4Gi"))
    (row,) = json.loads(run("pending", "-o", "json", on=shared).out)["items"]
    assert "no scheduler has recorded an attempt" in row["reason"]


def test_the_document_of_a_claim(run: Run, shared: FakeCluster) -> None:
    """The same fields as for a pod of the device plugin."""
    waits(shared, request("8Gi"))
    found = run("explain", "pod", "w", "-n", "default", "-o", "json", on=shared)
    document = json.loads(found.out)
    assert document["state"] == "Waiting"
    refusal = document["refusals"][0]
    assert refusal["code"] == "InsufficientMemory"
    assert refusal["gpus"][0] == {
        "index": 0,
        "code": "InsufficientMemory",
        "free": 6,
        "total": 15,
        "requested": 8,
    }


def test_a_pod_with_an_extended_resource_is_placed_by_its_claim(
    run: Run, shared: FakeCluster
) -> None:
    """``aliyun.com/gpu: 1`` on a node that offers claims."""
    shared.items = [item for item in shared.items if item["kind"] != "ResourceClaim"]
    extended = {"extendedResourceClaimStatus": {"resourceClaimName": "x-ext"}}
    shared.pod("x", node="n1", limits={"aliyun.com/gpu": "1"}, status=extended)
    shared.add(claim("x-ext", allocated("n1", 0), pods=["x"], spec=request()))
    assert "GPU 0 of node n1, exclusive (claim x-ext)" in explained(run, shared, "x")
    assert "15/15" in run("inspect", on=shared).out


def test_a_pending_pod_with_an_extended_resource_waits_for_a_claim(
    run: Run, cluster: FakeCluster
) -> None:
    """Its own scheduler allocates it, so no other has to be named; usage counts it once."""
    cluster.node("n1", resources={"pods": "9"}).add(resource_slice("n1", [device(0, 15)]))
    metadata = {"name": "s", "namespace": "kube-system"}
    data = {"config.yaml": CONFIGURATION}
    cluster.add(exclusive_class()).add({"kind": "ConfigMap", "metadata": metadata, "data": data})
    spec = {"schedulerName": "default-scheduler"}
    for name, count in (("one", "1"), ("two", "2")):
        cluster.pod(name, phase="Pending", limits={"aliyun.com/gpu": count}, spec=spec)
    one, two = (explained(run, cluster, name) for name in ("one", "two"))
    assert "It fits on 1 node: n1" in one
    assert "it fits no node now" in two
    for text in (one, two, run("pending", on=cluster).out):
        assert "schedulerName" not in text
    (group,) = json.loads(run("usage", "-A", "-o", "json", on=cluster).out)["items"]
    assert (group["pendingPods"], group["pendingGpus"]) == (2, 3)


def test_usage_counts_what_pending_claims_request(run: Run, shared: FakeCluster) -> None:
    """In the unit of the cluster."""
    waits(shared, request("8Gi"))
    groups = json.loads(run("usage", "-A", "-o", "json", on=shared).out)["items"]
    assert [(each["pendingPods"], each["pending"]) for each in groups] == [(1, 8)]


@pytest.mark.parametrize("command", [("explain", "pod", "web"), ("pending",), ("usage",)])
def test_no_amount_in_a_claim_of_a_tenant_hides_anything_of_others(
    run: Run, cluster: FakeCluster, command: tuple[str, ...]
) -> None:
    """The API server stores negative capacities; a claim that cannot be read is left out."""
    cluster.node("n", gpus=[Gpu(15)]).pod("web", 5, phase="Pending", namespace="team")
    before = run(*command, "-n", "team", on=cluster)
    cluster.add(claim("c", namespace="tenant", spec=request("-1Gi")))
    cluster.add(template("t", request("-1Gi"), namespace="tenant"))
    cluster.add(claim("unreadable", allocated("n1", 0, "much"), namespace="tenant"))
    after = run(*command, "-n", "team", on=cluster)
    assert (after.code, after.out) == (before.code, before.out)
    assert before.code == 0
