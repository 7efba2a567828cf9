"""Advice of ``explain pod`` and ``whatif`` that was wrong once: each case with the right answer."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpuinspect.cluster.schedulers import CONFIGURATION

WHOLE = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}


def helps(run: Run, cluster: FakeCluster, pod: str = "p") -> list[str]:
    """What would help the pod, by the JSON."""
    return list(explained(run, cluster, pod)["helps"])


def explained(run: Run, cluster: FakeCluster, pod: str = "p") -> dict[str, Any]:
    """The whole answer as JSON."""
    return dict(json.loads(run("explain", "pod", pod, "-o", "json", on=cluster).out))


def manifest(tmp_path: Path, mem: Any = 4, **spec: Any) -> str:
    """A pod in a file."""
    limits = {"aliyun.com/gpu-mem": mem}
    box = {"name": "c", "resources": {"limits": limits}, **spec.pop("container", {})}
    scheduler = {"schedulerName": "gpushare-scheduler"}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {**scheduler, "containers": [box]}}
    pod["spec"] |= spec
    path = tmp_path / "pod.yaml"
    path.write_text(json.dumps(pod))
    return str(path)


def two_nodes(cluster: FakeCluster, **spec: Any) -> FakeCluster:
    """Two empty nodes of one GPU each; a pod that waits with this specification."""
    cluster.node("n1", gpus=[Gpu(15)], labels={"disktype": "hdd"})
    cluster.node("n2", gpus=[Gpu(15)], labels={"disktype": "hdd"})
    return cluster.pod("p", 4, phase="Pending", spec=spec)


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "disktype", "operator": "In", "values": ["ssd", "nvme"]}
                    ]
                }
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodeSelector": {"disktype": "ssd"}}, "nodeSelector disktype=ssd"),
        ({"affinity": AFFINITY}, "node affinity disktype in (ssd, nvme)"),
    ],
)
def test_nodes_that_the_pod_excludes(
    run: Run, cluster: FakeCluster, spec: dict[str, Any], words: str
) -> None:
    """A pod whose nodeSelector or affinity excludes the nodes with room fits nowhere."""
    two_nodes(cluster, **spec)
    out = run("explain", "pod", "p", on=cluster).out
    assert "pending: it fits no node now" in out
    assert "It fits" not in out
    assert f"2      NodeAffinityMismatch  {words}" in out
    assert helps(run, cluster)[0] == (
        f"n1 has enough GPU memory; the pod is blocked by its {words}"
    )


def test_nodes_whose_taint_is_not_tolerated(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """A taint is named by explain and whatif; a toleration makes the pod fit."""
    two_nodes(cluster)
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    for item in cluster.items[:2]:
        item["spec"]["taints"] = [taint]
    out = run("explain", "pod", "p", on=cluster).out
    assert "2      TaintNotTolerated  taint dedicated=ml:NoSchedule" in out
    assert "n1 has enough GPU memory; the pod is blocked by taint dedicated=ml:NoSchedule" in out
    output = run("whatif", "-f", manifest(tmp_path), on=cluster).out
    assert "fits no node: 2 nodes: taint dedicated=ml:NoSchedule\n" in output
    tolerating = manifest(tmp_path, tolerations=[{"key": "dedicated", "operator": "Exists"}])
    assert run("whatif", "-f", tolerating, on=cluster).code == 0


def test_whatif_names_the_selector_that_no_node_matches(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Nodes do take new pods; it is the pod's own nodeSelector that excludes them."""
    two_nodes(cluster)
    out = run("whatif", "-f", manifest(tmp_path, nodeSelector={"disktype": "ssd"}), on=cluster).out
    assert "no node takes new pods" not in out
    assert "fits no node: 2 nodes: nodeSelector disktype=ssd\n" in out


def test_isolation_that_no_gpu_offers(run: Run, cluster: FakeCluster) -> None:
    """MPS demanded where no GPU runs it: the end of a neighbour does not help, MPS does."""
    cluster.node("n", gpus=[Gpu(15)]).pod("a", 12, node="n", index=0)
    cluster.pod("p", 8, phase="Pending", annotations={"gpushare/isolation": "mps"})
    assert helps(run, cluster) == [
        (
            "Turn that mode on for the node, or drop the pod's annotation gpushare/isolation; "
            "shares over several GPUs need GPUs without MPS."
        )
    ]


def test_more_compute_than_a_gpu_has(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """150 percent of compute is too much compute, in percent and not in GiB."""
    cluster.node("n", gpus=[Gpu(15)])
    limits = {"aliyun.com/gpu-core.percentage": "150"}
    cluster.pod("p", 4, phase="Pending", limits=limits)
    out = run("explain", "pod", "p", on=cluster).out
    assert "1      ComputeTooLarge  a GPU has 100 percent, requested 150" in out
    assert helps(run, cluster) == [
        (
            "Request at most 100 percent, or spread the pod over GPUs with the label "
            "aliyun.com/gpu-count (the prefix is that of the resources)."
        )
    ]
    box = {"container": {"resources": {"limits": {"aliyun.com/gpu-mem": 4, **limits}}}}
    output = run("whatif", "-f", manifest(tmp_path, **box), on=cluster).out
    assert "fits no node: 1 node: a GPU has 100 percent, requested 150\n" in output


def test_more_whole_gpus_than_any_node_has(run: Run, cluster: FakeCluster) -> None:
    """Nothing that is moved gives a node more GPUs than it has."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=WHOLE)
    cluster.pod("share", 1, node="n", index=0)
    cluster.pod("p", phase="Pending", limits={"aliyun.com/gpu": "3"})
    assert helps(run, cluster) == [
        "no node has 3 healthy GPUs; n has the most, 2: request at most 2",
        "GPU 1 can be had now, on n",
    ]


def test_an_unhealthy_gpu_is_not_moved_free(run: Run, cluster: FakeCluster) -> None:
    """Of a node's GPUs only the healthy ones can become free."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15, healthy=False)], resources=WHOLE)
    cluster.pod("share", 1, node="n", index=0)
    cluster.pod("p", phase="Pending", limits={"aliyun.com/gpu": "2"})
    assert helps(run, cluster) == [
        "no node has 2 healthy GPUs; n has the most, 1: request at most 1"
    ]


def test_an_amount_in_bytes(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """``8Gi`` of a resource that counts GiB: the answer states what to write."""
    cluster.node("n", gpus=[Gpu(15)])
    cluster.pod("p", phase="Pending", limits={"aliyun.com/gpu-mem": "8Gi"})
    assert "amounts are whole numbers of GiB: write 8" in helps(run, cluster)[0]
    assert "Requests:   8Gi of memory" in run("explain", "pod", "p", on=cluster).out
    output = run("whatif", "-f", manifest(tmp_path, "8Gi"), on=cluster).out
    assert (
        "largest GPU 15 GiB, requested 8Gi; amounts are whole numbers of GiB: write 8\n" in output
    )


@pytest.mark.parametrize(
    ("container", "sentence"),
    [
        (
            {"limits": {"aliyun.com/gpu-mem": 3.5}},
            (
                "aliyun.com/gpu-mem: 3.5 is rejected by the API server, which "
                "accepts integers only: "
                "write 4"
            ),
        ),
        (
            {"requests": {"aliyun.com/gpu-mem": 3}},
            (
                "aliyun.com/gpu-mem is requested without a limit, which the API server rejects: "
                "set it in limits"
            ),
        ),
        (
            {"requests": {"aliyun.com/gpu-mem": 3}, "limits": {"aliyun.com/gpu-mem": 4}},
            (
                "aliyun.com/gpu-mem has request 3 and limit 4, which the API server rejects: "
                "they must be equal"
            ),
        ),
    ],
)
def test_manifests_that_the_api_server_refuses(
    run: Run, cluster: FakeCluster, tmp_path: Path, container: dict[str, Any], sentence: str
) -> None:
    """What cannot be created is not placed: exit code 1 and what to write instead."""
    cluster.node("n", gpus=[Gpu(15)])
    path = manifest(tmp_path, container={"resources": container})
    outcome = run("whatif", "-f", path, on=cluster)
    assert (outcome.code, outcome.out) == (1, "")
    assert sentence in " ".join(outcome.err.split())


def with_cpu(cluster: FakeCluster) -> FakeCluster:
    """A node with room on its GPU and 1 of 4 cores left."""
    have = {"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    have |= {"cpu": "4", "memory": "16Gi", "pods": "110"}
    cluster.node("n", gpus=[Gpu(15)], resources=have)
    busy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    return cluster.pod("busy", node="n", spec=busy)


def test_cpu_that_is_requested_elsewhere(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """Requests of bound pods are counted against allocatable, as kube-scheduler does."""
    with_cpu(cluster)
    limits = {"aliyun.com/gpu-mem": "4", "cpu": "2"}
    cluster.pod("p", 4, phase="Pending", limits={"cpu": "2"})
    out = run("explain", "pod", "p", on=cluster).out
    assert "1      InsufficientResources  cpu: requested 2, 1 of 4 free" in out
    assert "n has enough GPU memory; the pod is blocked by insufficient cpu" in out
    box = {"container": {"resources": {"limits": limits}}}
    output = run("whatif", "-f", manifest(tmp_path, **box), on=cluster).out
    assert "fits no node: 1 node: cpu: requested 2, 1 of 4 free\n" in output


def test_the_end_of_a_pod_counts_its_cpu_too(run: Run, cluster: FakeCluster) -> None:
    """Advice about a neighbour's end is given only where nothing else keeps the pod off."""
    with_cpu(cluster)
    cluster.pod("a", 12, node="n", index=0)
    cluster.pod("p", 8, phase="Pending", limits={"cpu": "2"})
    assert not any("once default/a ends" in line for line in helps(run, cluster))


def test_a_misspelt_scheduler(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """Both explain and whatif name a scheduler that does not run, and the one that does."""
    two_nodes(cluster)
    cluster.pod("placed", 1, node="n1", index=0)
    cluster.items[2]["spec"]["schedulerName"] = "gpushare-schedular"
    wrong = (
        "no scheduler that calls the extender has the name gpushare-schedular: "
        "set spec.schedulerName to gpushare-scheduler"
    )
    configured(cluster)
    assert wrong in helps(run, cluster)
    path = manifest(tmp_path, schedulerName="gpushare-schedular")
    assert wrong in " ".join(run("whatif", "-f", path, on=cluster).err.split())
    assert "no scheduler" not in run("whatif", "-f", manifest(tmp_path), on=cluster).err


def configured(cluster: FakeCluster) -> None:
    """The ConfigMap of a scheduler that calls the extender."""
    text = json.dumps(
        {
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "gpushare-scheduler"}],
            "extenders": [{"managedResources": [{"name": "aliyun.com/gpu-mem"}]}],
        }
    )
    labels = {"app.kubernetes.io/component": "scheduler"}
    boxes = [{"name": "extender"}]
    cluster.pod(
        "scheduler", namespace="gpushare", metadata={"labels": labels}, spec={"containers": boxes}
    )
    config_map(cluster, text, namespace="gpushare")


def config_map(cluster: FakeCluster, text: str, *, namespace: str) -> None:
    """A ConfigMap with the labels of the chart's scheduler."""
    labels = {"app.kubernetes.io/component": "scheduler"}
    meta = {"name": "scheduler", "namespace": namespace, "labels": labels}
    cluster.add({"kind": "ConfigMap", "metadata": meta, "data": {"config.yaml": text}})


def test_a_config_map_of_a_tenant_configures_no_scheduler(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """In mode extender the real configuration is a file; none in a ConfigMap is believed for it."""
    two_nodes(cluster)
    cluster.items[2]["spec"]["schedulerName"] = "default-scheduler"
    profile = {"schedulerName": "evil-scheduler"}
    extenders = [{"managedResources": [{"name": "aliyun.com/gpu-mem"}]}]
    text = json.dumps({"kind": CONFIGURATION, "profiles": [profile], "extenders": extenders})
    config_map(cluster, text, namespace="tenant")
    assert "evil-scheduler" not in " ".join(helps(run, cluster))
    path = manifest(tmp_path, schedulerName="default-scheduler")
    assert "evil-scheduler" not in run("whatif", "-f", path, on=cluster).err
    cluster.items[-1]["metadata"]["namespace"] = "kube-system"
    assert "set spec.schedulerName to evil-scheduler" in " ".join(helps(run, cluster))


@pytest.mark.parametrize(
    "text",
    [
        "a: 2026-13-45",
        "a: " + "[" * 3000,
        "a: !!int ''",
        "a: !!timestamp 2026-01-01T00:00:00+99:99",
        "a: !!bool x",
        "profiles: 3",
        "profiles: [3]",
        "profiles: [{schedulerName: [a]}]",
        "extenders: [{managedResources: 3}]",
        "? [a]\n: b",
        "a: &a [*a]\nprofiles: *a",
        "a: \x00",
        "- a",
    ],
)
def test_what_is_no_configuration_configures_no_scheduler(
    run: Run, cluster: FakeCluster, text: str
) -> None:
    """A text that cannot be parsed, or has other types, ends no command."""
    two_nodes(cluster)
    configured(cluster)
    before = helps(run, cluster)
    config_map(cluster, f"# {CONFIGURATION} aliyun.com/gpu-mem\n{text}\n", namespace="gpushare")
    assert helps(run, cluster) == before
    assert run("doctor", on=cluster).code in {0, 1}


def test_a_text_that_is_no_configuration_by_its_size_is_not_parsed(
    run: Run, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each other one is parsed once, however many kinds of pods wait."""
    two_nodes(cluster)
    cluster.pod("q", 16, phase="Pending").pod("r", 17, phase="Pending")
    configured(cluster)
    text = f"# {CONFIGURATION} aliyun.com/gpu-mem\n" + "a: [1,2]\n" * 20_000
    config_map(cluster, text, namespace="gpushare")
    parsed = []
    load = yaml.safe_load
    monkeypatch.setattr(yaml, "safe_load", lambda text: parsed.append(len(text)) or load(text))
    assert run("pending", "-A", on=cluster).code == 0
    assert len(parsed) == 1
    assert parsed[0] < 1000


def test_a_scheduling_gate(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """No scheduler tries a pod with gates, whatever its condition states."""
    two_nodes(cluster, schedulingGates=[{"name": "example.com/quota"}])
    cluster.items[2]["status"]["conditions"] = [GATED]
    found = explained(run, cluster)
    assert found["state"] == "Gated"
    assert found["schedulerSawIt"] is False
    assert found["helps"][0] == (
        "its scheduling gate example.com/quota keeps every scheduler away from it: "
        "the controller that set the gate must remove it"
    )
    out = run("explain", "pod", "p", on=cluster).out
    assert "has tried to place it" not in out
    gated = manifest(tmp_path, schedulingGates=[{"name": "example.com/quota"}])
    assert "scheduling gate example.com/quota" in run("whatif", "-f", gated, on=cluster).err


def test_an_uneven_split_is_helped(run: Run, cluster: FakeCluster) -> None:
    """What the JSON suggests, the text suggests too."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)])
    cluster.pod("p", 7, phase="Pending", metadata={"labels": {"aliyun.com/gpu-count": "2"}})
    out = run("explain", "pod", "p", on=cluster).out
    assert "What would help:\n  - Request a multiple of the label gpu-count.\n" in out


def test_unhealthy_gpus_are_not_schedulable(run: Run, cluster: FakeCluster) -> None:
    """The JSON's schedulable memory leaves out unhealthy GPUs, cordoned and unready nodes."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15, healthy=False)]).pod("a", 4, node="n", index=0)
    cluster.pod("b", 5, node="n", index=1)
    cluster.node("away", gpus=[Gpu(15)], ready=False)
    document = json.loads(run("inspect", "-o", "json", on=cluster).out)
    assert document["cluster"] == {"allocated": 9, "total": 45}
    assert document["schedulable"] == {"allocated": 4, "total": 15}


def test_constraints_that_are_not_evaluated_are_reported(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """A pod with a rule that only the scheduler evaluates is not promised a place."""
    spread = [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone", "maxSkew": 1}]
    two_nodes(cluster, topologySpreadConstraints=spread)
    lines = helps(run, cluster)
    assert lines[0] == (
        "n1 has enough GPU memory; not evaluated here: topology spread constraints "
        "(the scheduler's message names what blocks the pod)"
    )
    path = manifest(tmp_path, topologySpreadConstraints=spread)
    outcome = run("whatif", "-f", path, on=cluster)
    assert "p: not evaluated: topology spread constraints" in outcome.err


def test_room_that_there_is(run: Run, cluster: FakeCluster) -> None:
    """A pod that every evaluated rule lets in is reported to fit, and no reason is invented."""
    two_nodes(cluster)
    out = run("explain", "pod", "p", on=cluster).out
    assert "It fits on 2 nodes: n1, n2" in out
    assert "n1 can take it now" in out


def unsteered(cluster: FakeCluster) -> None:
    """A webhook configuration that is none of ours."""
    cluster.add({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "istio"}})


def test_a_manifest_without_a_scheduler(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """Without our webhook kube-scheduler would place it by node totals: whatif warns."""
    two_nodes(cluster)
    configured(cluster)
    unsteered(cluster)
    path = manifest(tmp_path, schedulerName="")
    outcome = run("whatif", "-f", path, on=cluster)
    assert (
        "p: no scheduler that calls the extender has the name default-scheduler: "
        "set spec.schedulerName to gpushare-scheduler"
    ) in " ".join(outcome.err.split())
    assert json.loads(run("whatif", "-f", path, "-o", "json", on=cluster).out)["notes"]


@pytest.mark.parametrize("ours", [True, False])
def test_nothing_is_reported_where_the_webhook_may_steer(
    run: Run, cluster: FakeCluster, tmp_path: Path, *, ours: bool
) -> None:
    """Our webhook names the scheduler; where webhooks are unknown, nothing is concluded."""
    two_nodes(cluster)
    configured(cluster)
    if ours:
        cluster.add({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "gpushare"}})
    outcome = run("whatif", "-f", manifest(tmp_path, schedulerName=""), on=cluster)
    assert "no scheduler" not in outcome.err
