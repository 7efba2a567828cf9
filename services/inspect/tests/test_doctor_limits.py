"""``gpushare doctor`` at the limits of its checks: what is still sound, and what is not."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from claimobjects import device
from doctorcluster import (
    CONFIGURATION,
    CONFIRMED,
    capacity,
    inventory,
    item,
    kube_scheduler,
    nvidia_plugin,
    only_one,
    original,
    plugin,
    rewrite,
    sound,
    unhealthy_map,
    waiting,
)
from drawncluster import FakeCluster
from invoking import Run

from gpucore.wire.names import MANAGED_BY, PLUGIN
from gpuinspect.doctor.exempt import GPU_SOFTWARE

pytestmark = pytest.mark.slow

Change = Callable[[FakeCluster], object]
OTHER = "default-scheduler"


def check(run: Run, cluster: FakeCluster, name: str) -> dict[str, Any]:
    """One check of the document."""
    document = json.loads(run("doctor", "-o", "json", on=cluster).out)
    found: dict[str, Any] = next(each for each in document["items"] if each["name"] == name)
    return found


def restarts(cluster: FakeCluster, *counts: int) -> None:
    """Restarts of the containers of a plugin's pod."""
    statuses = [{"restartCount": count} for count in counts]
    item(cluster, "plugin-n1")["status"]["containerStatuses"] = statuses


def versions(cluster: FakeCluster, text: str, *nodes: str) -> None:
    """Version of the kubelets of some nodes."""
    for name in nodes:
        item(cluster, name)["status"]["nodeInfo"]["kubeletVersion"] = text


def webhook(cluster: FakeCluster, **hook: Any) -> None:
    """A webhook of another program."""
    kind = {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "istio"}}
    cluster.add({**kind, "webhooks": [{"name": "i", **hook}]})


def elsewhere(cluster: FakeCluster) -> None:
    """NVIDIA's plugin on a node that is not ours."""
    cluster.node("nv", resources={"nvidia.com/gpu": "2"}, labels={"gpushare": "false"})
    nvidia_plugin(cluster, "nv")


def unconfigured(cluster: FakeCluster) -> None:
    """No scheduler is configured, and a pod waits for one of its choice."""
    cluster.items.remove(item(cluster, "s"))
    unhealthy_map(cluster, "n2")
    waiting(cluster, spec={"schedulerName": OTHER})


def units(cluster: FakeCluster, amount: int) -> None:
    """One inventory of n1's GPUs with so many units of MiB in all."""
    first = amount // 2
    inventory(cluster, '"unit": "GiB"', '"unit": "MiB"')
    found = json.loads(item(cluster, "n1")["metadata"]["annotations"]["gpushare/inventory"])
    for gpu, share in zip(found["gpus"], (first, amount - first), strict=True):
        gpu["units"] = share
        gpu["memoryMiB"] = share
    item(cluster, "n1")["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(found)


def not_ready(cluster: FakeCluster) -> None:
    """Both extenders are not ready."""
    for name in ("n1", "n2"):
        rewrite(cluster, f"scheduler-{name}", '"True"', '"False"')


def config_map(cluster: FakeCluster, name: str, gpus: str) -> None:
    """A ConfigMap of kube-system."""
    metadata = {"name": name, "namespace": "kube-system"}
    cluster.add({"kind": "ConfigMap", "metadata": metadata, "data": {"gpus": gpus}})


def reading(cluster: FakeCluster, name: str) -> None:
    """A ConfigMap that the extenders read."""
    config_map(cluster, name, "1")
    for node in ("n1", "n2"):
        spec = item(cluster, f"scheduler-{node}")["spec"]
        spec["containers"][0]["args"] = ["--unhealthy-configmaps"]


def kept(cluster: FakeCluster, name: str) -> None:
    """A ConfigMap of the device plugin, which repeats the inventory."""
    config_map(cluster, name, "1")
    cluster.items[-1]["metadata"]["labels"] = {MANAGED_BY: PLUGIN}


def visible(cluster: FakeCluster, amount: int, place: str = "containers") -> None:
    """A pod that chooses its GPUs."""
    box = {"name": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    added(cluster, amount, place, box)


MEM = {"aliyun.com/gpu-mem": "1"}
MANAGED = CONFIGURATION[CONFIGURATION.index("managedResources") :].replace("\n", "\\n")
UNNAMED = "# aliyun.com/gpu-mem is managed as well"


def failed(cluster: FakeCluster, limits: dict[str, str], reason: str) -> None:
    """A pod that kubelet refused."""
    cluster.pod("x", node="n1", limits=limits, phase="Failed", status={"reason": reason})


def beside(cluster: FakeCluster, resource: str) -> None:
    """An extender of another vendor, called for one resource or for all pods."""
    managed = f"  managedResources: [{{name: {resource}}}]\\n" if resource else ""
    other = f"extenders:\\n- prioritizeVerb: prioritize\\n  ignorable: true\\n{managed}"
    rewrite(cluster, "s", "extenders:\\n", other)


def thief(
    cluster: FakeCluster, value: str | None, place: str = "containers", **fields: Any
) -> None:
    """A pod without a request whose environment chooses GPUs; ``None`` by a reference."""
    source: dict[str, Any] = {"valueFrom": {}} if value is None else {"value": value}
    box = {"name": "x", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", **source}]}
    cluster.pod("x", **{"node": "n1", "spec": {place: [box]}, **fields})


def exempt(cluster: FakeCluster) -> None:
    """The admission policy exempts another namespace."""
    key = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["mine"]}
    variable = {"name": "visible", "expression": "'NVIDIA_VISIBLE_DEVICES'"}
    constraints = {"namespaceSelector": {"matchExpressions": [key]}}
    spec = {"matchConstraints": constraints, "variables": [variable]}
    metadata = {"name": "environment"}
    cluster.add({"kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec})


def privileged(cluster: FakeCluster, amount: int, place: str = "containers") -> None:
    """A pod with a privileged container."""
    added(cluster, amount, place, {"name": "x", "securityContext": {"privileged": True}})


def added(cluster: FakeCluster, amount: int, place: str, box: dict[str, Any]) -> None:
    """A pod on the second GPU of n1 with one more container."""
    index = 1 if amount else None
    cluster.pod("x", amount, node="n1", index=index, annotations=CONFIRMED if amount else {})
    item(cluster, "x")["spec"].setdefault(place, []).append(box)


def uncounted(cluster: FakeCluster) -> None:
    """The number of GPUs is not in the node's status."""
    for part in ("capacity", "allocatable"):
        item(cluster, "n1")["status"][part].pop("aliyun.com/gpu-count", None)


def pending_plugins(cluster: FakeCluster) -> None:
    """Two pods of the plugin that have no node yet."""
    for name in ("one", "two"):
        plugin(cluster, name, "")


def only_gpus(cluster: FakeCluster) -> None:
    """A node that offers exclusive GPUs and no shares."""
    found = item(cluster, "n1")
    found["status"]["capacity"] = found["status"]["allocatable"] = {"aliyun.com/gpu": "2"}


def extended(cluster: FakeCluster, **fields: Any) -> None:
    """A pod with an exclusive GPU of a claim, which its own scheduler makes and allocates."""
    limits = {"aliyun.com/gpu": "1"}
    cluster.pod("x", limits=limits, spec={"schedulerName": OTHER}, **fields)


def unregistered(cluster: FakeCluster) -> None:
    """No kubelet has a plugin yet, so that no size of a GPU is known."""
    for name in ("n1", "n2"):
        found = item(cluster, name)
        found["status"]["capacity"] = found["status"]["allocatable"] = {}
        found["metadata"]["annotations"] = {}


def oversold(cluster: FakeCluster, ratio: str, offered: int) -> None:
    """The label of n1 and the units that its kubelet has."""
    item(cluster, "n1")["metadata"]["labels"]["ack.node.gpu.schedule.oversell"] = ratio
    capacity(cluster, gpu_mem=f"{offered}")


def oversold_units(cluster: FakeCluster, amount: int, ratio: str) -> None:
    """Units of MiB, offered several times over."""
    units(cluster, amount)
    oversold(cluster, ratio, amount * int(ratio))


def both_plugins(cluster: FakeCluster) -> None:
    """NVIDIA's resource beside ours."""
    for part in ("capacity", "allocatable"):
        item(cluster, "n1")["status"][part]["nvidia.com/gpu"] = "2"


def stopped_nvidia_plugin(cluster: FakeCluster) -> None:
    """Kubelet keeps the capacity of its resource for minutes, with nothing of it allocatable."""
    both_plugins(cluster)
    item(cluster, "n1")["status"]["allocatable"]["nvidia.com/gpu"] = "0"


def second_scheduler(cluster: FakeCluster) -> None:
    """The chart has a scheduler of its own, and kubeadm's runs beside it."""
    kube_scheduler(cluster, "--v=2")
    item(cluster, "s")["metadata"]["labels"] = {"app.kubernetes.io/component": "scheduler"}


KUBE_SCHEDULER = "kube-scheduler-configured"
INSTALLED = "--config=/etc/kubernetes/gpushare/scheduler-1.yaml"
SOUND: list[tuple[str, str, Change]] = [
    ("one-kind", "NVIDIA's plugin has just stopped", stopped_nvidia_plugin),
    (KUBE_SCHEDULER, "mode second", second_scheduler),
    (KUBE_SCHEDULER, "installed", lambda c: kube_scheduler(c, INSTALLED)),
    (KUBE_SCHEDULER, "a tenant's", lambda c: kube_scheduler(c, "--v=2", namespace="team")),
    (KUBE_SCHEDULER, "unknown flags", kube_scheduler),
    ("kube-scheduler-installed", "installed", lambda c: kube_scheduler(c, INSTALLED)),
    ("kube-scheduler-installed", "without a file", lambda c: kube_scheduler(c, "--v=2")),
    ("few-restarts", "five", lambda c: restarts(c, 2, 3)),
    ("kubelet-version", "the oldest", lambda c: versions(c, "v1.20.0", "n1", "n2")),
    ("kubelet-version", "unreadable", lambda c: versions(c, "unknown", "n1")),
    ("kubelet-skew", "one unreadable", lambda c: versions(c, "unknown", "n1")),
    ("kubelet-skew", "patch releases", lambda c: versions(c, "v1.37.9", "n1")),
    ("requests-fit-a-gpu", "the largest", lambda c: waiting(c, 15)),
    ("requests-fit-a-gpu", "no plugin has registered", lambda c: waiting(c) or unregistered(c)),
    ("no-foreign-plugin", "on another node", elsewhere),
    ("webhook-trusted", "of others", lambda c: webhook(c, clientConfig={})),
    ("webhook-lenient", "of others", lambda c: webhook(c, failurePolicy="Fail")),
    ("scheduler-named", "no configuration", unconfigured),
    ("scheduled-by-us", "waiting", lambda c: waiting(c, spec={"schedulerName": OTHER})),
    ("claims-confirmed", "starting", lambda c: c.pod("x", 1, node="n1", index=0, phase="Pending")),
    ("no-gpu-overfull", "full", lambda c: c.pod("x", 12, node="n1", index=0)),
    ("admitted", "other failures", lambda c: c.pod("x", 1, phase="Failed", status={"reason": "E"})),
    ("one-driver", "one unknown", lambda c: inventory(c, "580.95.05", "")),
    ("extender-replicas", "none is ready", not_ready),
    ("unhealthy-config-maps", "a GPU there is", lambda c: reading(c, "unhealthy-gpu-n1")),
    ("unhealthy-config-maps", "of the plugin", lambda c: kept(c, "unhealthy-gpu-n1")),
    ("unhealthy-config-maps", "another name", lambda c: config_map(c, "healthy-gpu-n9", "1")),
    ("message-size", "the largest", lambda c: units(c, 69_905)),
    ("admitted", "a pod without a GPU", lambda c: failed(c, {}, "UnexpectedAdmissionError")),
    ("admitted", "for want of CPU", lambda c: failed(c, MEM, "OutOfcpu")),
    ("scheduler-configured", "an extender of others", lambda c: beside(c, "a.com/b")),
    ("scheduler-configured", "an extender for all pods", lambda c: beside(c, "")),
    ("scheduler-configured", "all pods", lambda c: rewrite(c, "s", MANAGED, UNNAMED)),
    ("no-visible-devices", "on another node", lambda c: thief(c, "all", node="elsewhere")),
    ("no-visible-devices", "of an ended pod", lambda c: thief(c, "all", phase="Succeeded")),
    ("no-visible-devices", "of GPU software", lambda c: thief(c, "all", namespace="gpu-operator")),
    ("no-visible-devices", "of the release", lambda c: thief(c, "all", namespace="gpushare")),
    ("no-visible-devices", "exempt", lambda c: exempt(c) or thief(c, "all", namespace="mine")),
    *(("no-visible-devices", f"{v!r}", partial(thief, value=v)) for v in ("", "none", "void")),
    ("no-privileged-share", "without a share", lambda c: privileged(c, 0)),
    ("gpu-count-agrees", "unknown", uncounted),
    ("one-plugin", "on no node", pending_plugins),
    ("inventory-agrees", "exclusive GPUs alone", only_gpus),
    ("claims-confirmed", "by a claim", lambda c: extended(c, node="n3")),
    ("scheduled-by-us", "by a claim", lambda c: extended(c, node="n3")),
    ("scheduler-named", "by a claim", lambda c: extended(c, phase="Pending")),
    ("inventory-agrees", "oversold", lambda c: oversold(c, "2", 60)),
    ("inventory-agrees", "a ratio above the largest", lambda c: oversold(c, "17", 480)),
    ("message-size", "the largest oversold", lambda c: oversold_units(c, 34_952, "2")),
]


@pytest.mark.parametrize(
    ("name", "change"), [(n, c) for n, _, c in SOUND], ids=[f"{n}: {t}" for n, t, _ in SOUND]
)
def test_what_is_still_sound_is_not_named(run: Run, name: str, change: Change) -> None:
    """A check that cries too early is soon ignored."""
    cluster = sound()
    change(cluster)
    assert check(run, cluster, name)["findings"] == []


FOUND: list[tuple[str, Change, list[str]]] = [
    (
        "inventory-agrees",
        lambda c: oversold(c, "2", 30),
        ["n1: GPUs of 60 GiB in total, kubelet has 30"],
    ),
    (
        "message-size",
        lambda c: oversold_units(c, 34_954, "2"),
        ["n1: 69908 device IDs, one for each MiB, are too many for kubelet; use 256MiB"],
    ),
    (
        KUBE_SCHEDULER,
        lambda c: kube_scheduler(c, "--leader-elect=true"),
        ["kube-system/kube-scheduler-m1 has no --config, so it does not call the extender"],
    ),
    (
        "kube-scheduler-installed",
        lambda c: kube_scheduler(c, "--config", "/etc/mine.yaml"),
        ["kube-system/kube-scheduler-m1 has --config=/etc/mine.yaml"],
    ),
    (
        "kube-scheduler-installed",
        lambda c: kube_scheduler(c, "--policy-config-file=/etc/policy.json"),
        ["kube-system/kube-scheduler-m1 has --policy-config-file=/etc/policy.json"],
    ),
    (
        "few-restarts",
        lambda c: restarts(c, 2, 4),
        ["gpushare/plugin-n1 has restarted 6 times"],
    ),
    (
        "message-size",
        lambda c: units(c, 69_906),
        ["n1: 69906 device IDs, one for each MiB, are too many for kubelet; use 256MiB"],
    ),
    (
        "extender-ready",
        lambda c: [c.items.remove(item(c, f"scheduler-{n}")) for n in ("n1", "n2")],
        ["no extender pod was found"],
    ),
    (
        "extender-ready",
        not_ready,
        ["gpushare/scheduler-n1 is not ready", "gpushare/scheduler-n2 is not ready"],
    ),
    (
        "extender-replicas",
        lambda c: only_one(c, "scheduler-"),
        ["only gpushare/scheduler-n1 is ready"],
    ),
    (
        "extender-replicas",
        lambda c: rewrite(c, "scheduler-n2", '"True"', '"False"'),
        ["only gpushare/scheduler-n1 is ready; not ready: gpushare/scheduler-n2"],
    ),
    (
        "scheduler-configured",
        lambda c: rewrite(c, "s", "filterVerb: filter", "weight: 1"),
        ["the extender is called without filterVerb"],
    ),
    (
        "scheduler-configured",
        lambda c: rewrite(c, "s", "bindVerb: bind", "bindVerb: bind\\n  ignorable: true"),
        ["the extender is ignorable: while it is down, pods are placed without regard to GPUs"],
    ),
    (
        "scheduler-named",
        lambda c: waiting(c, spec={"schedulerName": OTHER}),
        [f"default/w names {OTHER}, not gpushare-scheduler"],
    ),
    (
        "admitted",
        lambda c: c.pod(
            "x",
            1,
            node="n1",
            phase="Failed",
            status={"reason": "OutOfaliyun.com/gpu-mem", "message": "m"},
        ),
        ["default/x on n1: OutOfaliyun.com/gpu-mem m"],
    ),
    (
        "admitted",
        lambda c: failed(c, {"aliyun.com/gpu": "1"}, "OutOfaliyun.com/gpu"),
        ["default/x on n1: OutOfaliyun.com/gpu"],
    ),
    (
        "scheduler-configured",
        lambda c: rewrite(c, "s", MANAGED, f"managedResources: [{{name: a.com/b}}] {UNNAMED}"),
        ["no extender is called for aliyun.com/gpu-mem"],
    ),
    (
        "no-visible-devices",
        lambda c: thief(c, "all"),
        ["default/x sets it in container x"],
    ),
    (
        "no-visible-devices",
        lambda c: thief(c, "all", "initContainers"),
        ["default/x sets it in container x"],
    ),
    (
        "no-visible-devices",
        lambda c: visible(c, 1, "initContainers"),
        ["default/x sets it in container x"],
    ),
    (
        "no-visible-devices",
        lambda c: thief(c, None, node="n3"),
        ["default/x sets it in container x"],
    ),
    (
        "kubelet-skew",
        lambda c: versions(c, "v1.38.0", "n1"),
        ["kubelets of several minor versions: v1.37.1, v1.38.0"],
    ),
    (
        "one-driver",
        lambda c: inventory(c, "580.95.05", "470.1"),
        ["nodes have drivers 470.1, 580.95.05"],
    ),
    (
        "no-privileged-share",
        lambda c: privileged(c, 1, "initContainers"),
        ["default/x"],
    ),
    (
        "no-foreign-plugin",
        lambda c: nvidia_plugin(
            c, "n1", "x", metadata={"labels": {"name": "nvidia-device-plugin-ds"}}
        ),
        ["kube-system/x on n1"],
    ),
    (
        "unit-published",
        lambda c: original(c, 101),
        ["n1: GPUs of 101 units, assumed to be MiB"],
    ),
    (
        "allocatable",
        lambda c: (
            only_gpus(c) or item(c, "n1")["status"].update(allocatable={"aliyun.com/gpu": "1"})
        ),
        ["n1: kubelet offers 1 of 2 aliyun.com/gpu"],
    ),
    (
        "gpus-healthy",
        lambda c: item(c, "n3-gpu.gpushare.io")["spec"].update(
            devices=[device(0, 15, taint="NoSchedule")]
        ),
        ["n3: GPU 0"],
    ),
    (
        "one-kind",
        lambda c: item(c, "n3")["status"].update(allocatable={"nvidia.com/gpu": "1"}),
        ["n3 offers nvidia.com/gpu and claims of the same GPUs"],
    ),
    (
        "scheduler-named",
        lambda c: only_gpus(c) or extended(c, phase="Pending"),
        [f"default/x names {OTHER}, not gpushare-scheduler"],
    ),
    (
        "plugin-registered",
        lambda c: item(c, "n1")["metadata"]["labels"].update(gputopology="true"),
        ["n1 is labelled, but offers no aliyun.com/gpu"],
    ),
    (
        "one-kind",
        lambda c: only_gpus(c) or capacity(c) or both_plugins(c),
        ["n1 offers nvidia.com/gpu and exclusive GPUs of the same GPUs"],
    ),
]


@pytest.mark.parametrize(("name", "change", "findings"), FOUND, ids=[each[0] for each in FOUND])
def test_what_is_found_is_reported_in_full(
    run: Run, name: str, change: Change, findings: list[str]
) -> None:
    """The sentence has the object, the figure and the limit."""
    cluster = sound()
    change(cluster)
    assert check(run, cluster, name)["findings"] == findings


def test_a_check_names_each_kind_that_it_lacks(run: Run) -> None:
    """It is skipped, which is neither sound nor a fault, and ends with exit code 0."""
    cluster = sound()
    cluster.items.remove(item(cluster, "nvidia"))
    found = check(run, cluster, "runtime-class")
    assert (found["result"], found["findings"]) == ("skip", ["RuntimeClass: not at hand"])
    assert run("doctor", on=cluster).code == 0


def test_the_namespaces_of_gpu_software_are_those_of_the_chart() -> None:
    """A pod that admission lets through is no fault of the cluster."""
    values = Path(__file__).parents[3] / "helm" / "gpushare" / "values.yaml"
    chart = yaml.safe_load(values.read_text())["admissionPolicy"]
    assert set(chart["exemptNamespaces"]) == GPU_SOFTWARE
