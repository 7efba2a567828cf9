"""``gpushare doctor``: a sound installation passes, and every check finds its own fault."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claimobjects import allocated, claim
from doctorcluster import (
    CONFIRMED,
    alone,
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
    unlabel,
    waiting,
)
from drawncluster import FakeCluster
from invoking import Run

from gpuinspect.doctor.registry import CHECKS

pytestmark = pytest.mark.slow

Break = Callable[[FakeCluster], object]
FAULTS: list[tuple[str, Break]] = [
    ("nodes-labelled", unlabel),
    ("nodes-ready", lambda c: rewrite(c, "n1", '"status": "True"', '"status": "False"')),
    ("nodes-schedulable", lambda c: item(c, "n1").update(spec={"unschedulable": True})),
    ("kubelet-version", lambda c: rewrite(c, "n1", "v1.37.1", "v1.19.9")),
    ("kubelet-skew", lambda c: rewrite(c, "n1", "v1.37.1", "v1.29.0")),
    ("container-runtime", lambda c: rewrite(c, "n1", "containerd://", "rkt://")),
    ("one-kind", lambda c: item(c, "n1")["status"]["allocatable"].update({"nvidia.com/gpu": "2"})),
    ("plugin-registered", lambda c: capacity(c, gpu_mem="0")),
    ("no-stale-offer", lambda c: rewrite(c, "n1", '"gpushare": "true"', '"gpushare": "false"')),
    (
        "allocatable",
        lambda c: item(c, "n1")["status"].update(allocatable={"aliyun.com/gpu-mem": "15"}),
    ),
    ("inventory-published", lambda c: original(c, 15)),
    ("inventory-readable", lambda c: inventory(c, '"version": 1', '"version": 9')),
    ("inventory-agrees", lambda c: capacity(c, gpu_mem="29")),
    ("gpu-count-agrees", lambda c: capacity(c, gpu_count="3")),
    ("unit-published", lambda c: original(c, 140)),
    ("one-unit", lambda c: inventory(c, '"unit": "GiB"', '"unit": "256MiB"')),
    ("message-size", lambda c: inventory(c, '"units": 15', '"units": 81559')),
    ("gpus-healthy", lambda c: inventory(c, '"healthy": true', '"healthy": false')),
    ("no-promise-beyond-memory", lambda c: inventory(c, "15360", "14336")),
    ("driver-known", lambda c: inventory(c, "580.95.05", "")),
    ("one-driver", lambda c: inventory(c, "580.95.05", "470.1")),
    (
        "node-labels",
        lambda c: item(c, "n1")["metadata"]["labels"].update({"ack.node.gpu.max-pod": "many"}),
    ),
    ("unhealthy-config-maps", lambda c: unhealthy_map(c, "n1")),
    ("unhealthy-config-maps", lambda c: unhealthy_map(c, "n9")),
    ("unhealthy-config-maps", lambda c: unhealthy_map(c, "n1", "1")),
    ("plugin-runs", lambda c: only_one(c, "plugin-")),
    ("one-plugin", lambda c: plugin(c, "second", "n1", "older")),
    ("no-foreign-plugin", lambda c: nvidia_plugin(c, "n1")),
    (
        "extender-ready",
        lambda c: [rewrite(c, f"scheduler-{n}", '"True"', '"False"') for n in ("n1", "n2")],
    ),
    ("extender-replicas", lambda c: only_one(c, "scheduler-")),
    (
        "few-restarts",
        lambda c: item(c, "plugin-n1")["status"].update(containerStatuses=[{"restartCount": 9}]),
    ),
    ("one-version", lambda c: rewrite(c, "plugin-n1", "0.1.0", "0.0.9")),
    (
        "runtime-class",
        lambda c: item(c, "plugin-n1")["spec"].update(runtimeClassName="missing"),
    ),
    ("webhook-trusted", lambda c: rewrite(c, "gpushare", "Cg==", "")),
    ("webhook-ready", lambda c: rewrite(c, "webhook-n1", '"True"', '"False"')),
    ("webhook-ready", lambda c: c.items.remove(item(c, "webhook-n1"))),
    ("webhook-lenient", lambda c: rewrite(c, "gpushare", "Ignore", "Fail")),
    ("scheduler-configured", lambda c: rewrite(c, "s", "bindVerb: bind", "weight: 1")),
    ("scheduler-configured", lambda c: c.items.remove(item(c, "s")) or unhealthy_map(c, "n2")),
    ("scheduler-configured", lambda c: rewrite(c, "s", "aliyun.com/gpu-core.percentage", "x")),
    ("kube-scheduler-configured", lambda c: kube_scheduler(c, "--leader-elect=true")),
    ("kube-scheduler-installed", lambda c: kube_scheduler(c, "--config=/etc/mine.yaml")),
    ("nomination-supported", lambda c: rewrite(c, "scheduler-n1", "v1.37.1", "v1.21.14")),
    ("nomination-allowed", lambda c: rewrite(c, "extender-role", '"patch"', '"get"')),
    ("nomination-allowed", lambda c: rewrite(c, "extender-binding", '"default"', '"other"')),
    ("nomination-allowed", lambda c: rewrite(c, "extender-binding", '"gpushare"', '"other"')),
    ("nomination-limited", lambda c: rewrite(c, "extender-limit", "Deny", "Audit")),
    ("nomination-limited", lambda c: rewrite(c, "extender-policy", "nominatedNodeName", "x")),
    ("nomination-limited", lambda c: rewrite(c, "extender-policy", ":default'", ":default-2'")),
    ("nomination-limited", alone),
    ("scheduler-named", lambda c: waiting(c, spec={"schedulerName": "default-scheduler"})),
    (
        "scheduled-by-us",
        lambda c: item(c, "p")["spec"].update(schedulerName="default-scheduler"),
    ),
    ("requests-possible", lambda c: waiting(c, limits={"aliyun.com/gpu": "1"})),
    ("requests-fit-a-gpu", lambda c: waiting(c, 16)),
    ("no-gpu-count-request", lambda c: waiting(c, limits={"aliyun.com/gpu-count": "1"})),
    (
        "no-visible-devices",
        lambda c: rewrite(
            c,
            "p",
            '"name": "c0"',
            '"name": "c0", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]',
        ),
    ),
    (
        "no-privileged-share",
        lambda c: rewrite(
            c, "p", '"name": "c0"', '"name": "c0", "securityContext": {"privileged": true}'
        ),
    ),
    (
        "admitted",
        lambda c: c.pod(
            "x", 1, node="n1", phase="Failed", status={"reason": "UnexpectedAdmissionError"}
        ),
    ),
    ("scheduler-looks", lambda c: waiting(c, status={})),
    ("no-pending", lambda c: c.pod("x", 1, node="n1", annotations=CONFIRMED)),
    ("no-pending", lambda c: c.add(claim("x", allocated("n3", 7, "1Gi")))),
    (
        "annotations-true",
        lambda c: c.pod("x", 1, node="n1", index="one", annotations=CONFIRMED),
    ),
    ("gpus-exist", lambda c: c.pod("x", 1, node="n1", index=5, annotations=CONFIRMED)),
    ("no-gpu-overfull", lambda c: c.pod("x", 13, node="n1", index=0, annotations=CONFIRMED)),
    ("claims-confirmed", lambda c: c.pod("x", 1, node="n1", index=0)),
    ("nodes-exist", lambda c: c.pod("x", 1, node="gone", index=0, annotations=CONFIRMED)),
    ("pods-end", lambda c: (leave(c, "p"), unready(c, "n1"))),
    ("claims-published", lambda c: rewrite(c, "n3-gpu.gpushare.io", '"n3"', '"n9"')),
    ("claims-class", lambda c: rewrite(c, "shares", "gpu.gpushare.io", "gpu.nvidia.com")),
    ("claims-kubelet", lambda c: rewrite(c, "n3", "v1.37.1", "v1.35.0")),
    (
        "claims-one-api",
        lambda c: item(c, "n3")["status"].update(allocatable={"aliyun.com/gpu-mem": "15"}),
    ),
    ("no-gpu-overfull", lambda c: c.add(claim("x", allocated("n3", 0, "16Gi")))),
]


def verdicts(run: Run, cluster: FakeCluster) -> dict[str, dict[str, Any]]:
    """The checks of the document by name."""
    document = json.loads(run("doctor", "-o", "json", on=cluster).out)
    return {check["name"]: check for check in document["items"]}


def test_a_sound_installation_passes(run: Run) -> None:
    """Nothing is found, nothing is skipped, and the exit code is 0."""
    found = verdicts(run, sound())
    assert {name: c["findings"] for name, c in found.items() if c["result"] != "ok"} == {}
    outcome = run("doctor", on=sound())
    assert outcome == (0, f"{len(CHECKS)} checks: {len(CHECKS)} ok\n", "")


@pytest.mark.parametrize(("name", "break_it"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_fault_is_found(run: Run, name: str, break_it: Break) -> None:
    """The check that is made for a fault finds it and states what to do."""
    broken = copy.deepcopy(sound())
    break_it(broken)
    check = verdicts(run, broken)[name]
    assert check["result"] in {"warn", "fail"}
    assert check["findings"]
    assert check["remedy"]


@pytest.mark.parametrize(("name", "break_it"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_snapshot_shows_the_same_faults(
    run: Run, tmp_path: Path, name: str, break_it: Break
) -> None:
    """The checks of a file of ``gpushare snapshot`` are those of its cluster."""
    broken, path = copy.deepcopy(sound()), tmp_path / "cluster.json"
    break_it(broken)
    assert run("snapshot", str(path), on=broken).code == 0
    document = json.loads(run("doctor", "-o", "json", "--snapshot", str(path)).out)
    found = {check["name"]: check for check in document["items"]}
    assert found == verdicts(run, broken)
    assert found[name]["result"] in {"warn", "fail"}


@pytest.mark.parametrize(
    ("labels", "pods", "figures"),
    [
        ({"ack.node.gpu.max-pod": "1"}, ({}, {}), "2 pods of at most 1"),
        ({}, ({"aliyun.com/gpu-core.percentage": "60"},) * 2, "120 % of its compute"),
    ],
)
def test_what_exceeds_on_an_overfull_gpu_is_named(
    run: Run, labels: dict[str, str], pods: tuple[dict[str, str], ...], figures: str
) -> None:
    """A GPU may have memory to spare, and more pods or compute allocated than it may have."""
    cluster = sound()
    item(cluster, "n2")["metadata"].setdefault("labels", {}).update(labels)
    for number, limits in enumerate(pods):
        cluster.pod(f"x{number}", 1, node="n2", index=0, annotations=CONFIRMED, limits=limits)
    (finding,) = verdicts(run, cluster)["no-gpu-overfull"]["findings"]
    assert finding == f"n2 GPU 0: 2 of 15 GiB, {figures}"


def test_every_check_has_a_fault() -> None:
    """No check is without the proof that it can fail; there are at least 25."""
    assert {check.name for check in CHECKS} == {name for name, _ in FAULTS}
    assert len(CHECKS) >= 25


def test_what_is_not_at_hand_is_skipped(run: Run) -> None:
    """With nodes and pods alone some checks are skipped, and name the kind that is missing."""
    cluster = sound()
    cluster.items = [i for i in cluster.items if i["kind"] in {"Node", "Pod"}]
    skipped = [c for c in verdicts(run, cluster).values() if c["result"] == "skip"]
    assert {c["name"] for c in skipped} >= {"runtime-class", "scheduler-configured"}
    assert all("not at hand" in c["findings"][0] for c in skipped)


def test_failures_end_with_exit_code_1(run: Run) -> None:
    """The table shows the failing check, its finding and its remedy, in words."""
    cluster = sound()
    only_one(cluster, "plugin-")
    outcome = run("doctor", on=cluster)
    assert outcome.code == 1
    assert outcome.out.splitlines() == [
        "FAIL  plugin-runs: a ready device plugin runs on every labelled node",
        "      - n2 has no pod of the plugin",
        DO_PLUGIN,
        f"{len(CHECKS)} checks: {len(CHECKS) - 1} ok, 1 FAIL",
    ]


def test_warnings_end_with_exit_code_0(run: Run) -> None:
    """A warning is shown, but scripts go on."""
    cluster = sound()
    cluster.pod("x", 1, node="n1", index=0)
    outcome = run("doctor", on=cluster)
    assert (outcome.code, outcome.out.startswith("WARN  claims-confirmed")) == (0, True)


DO_PLUGIN = (
    "      do: kubectl describe the pod: image, runtime class, NVML; where there is none the "
    "DaemonSet, whose events have the reason: Pod Security, taints; where the node is not ready, "
    "see to it first"
)


def phase(cluster: FakeCluster, name: str, **status: Any) -> None:
    """Set fields of a pod's status."""
    item(cluster, name)["status"].update(status)


def leave(cluster: FakeCluster, name: str) -> None:
    """Deletion of a pod was requested."""
    item(cluster, name)["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"


def unready(cluster: FakeCluster, name: str) -> None:
    """The node's kubelet does not report."""
    phase(cluster, name, conditions=[{"type": "Ready", "status": "Unknown"}])


def second_plugin(cluster: FakeCluster) -> None:
    """Another pod of the plugin on n1."""
    plugin(cluster, "second", "n1")


ENDED: list[Break] = [
    lambda c: leave(c, "second"),
    lambda c: phase(c, "second", phase="Failed", reason="Evicted"),
    lambda c: phase(c, "second", phase="Succeeded"),
]


@pytest.mark.parametrize("end", ENDED, ids=["terminating", "evicted", "finished"])
def test_a_plugin_pod_that_ends_is_no_second_one(run: Run, end: Break) -> None:
    """During a rollout, after an eviction and after an end, the node has one plugin."""
    cluster = sound()
    second_plugin(cluster)
    assert verdicts(run, cluster)["one-plugin"]["findings"] == ["n1 has 2"]
    end(cluster)
    assert verdicts(run, cluster)["one-plugin"]["result"] == "ok"


def test_a_plugin_pod_that_is_not_ready_is_named(run: Run) -> None:
    """The reason is with the pod; without a pod it is with the DaemonSet."""
    cluster = sound()
    phase(cluster, "plugin-n1", conditions=[{"type": "Ready", "status": "False"}])
    (finding,) = verdicts(run, cluster)["plugin-runs"]["findings"]
    assert finding == "gpushare/plugin-n1 on n1 is not ready"


@pytest.mark.parametrize("end", ["Failed", "Succeeded"])
def test_a_plugin_pod_that_has_ended_does_not_run(run: Run, end: str) -> None:
    """What it reports of being ready is of the past."""
    cluster = sound()
    phase(cluster, "plugin-n1", phase=end)
    assert verdicts(run, cluster)["plugin-runs"]["findings"] == ["n1 has no pod of the plugin"]


def test_restarts_of_an_evicted_plugin_pod_are_past(run: Run) -> None:
    """Its counters are of no interest any more; those of the running one are."""
    cluster = sound()
    second_plugin(cluster)
    phase(cluster, "second", phase="Failed", reason="Evicted")
    item(cluster, "second")["status"]["containerStatuses"] = [{"restartCount": 9}]
    assert verdicts(run, cluster)["few-restarts"]["result"] == "ok"


def test_a_foreign_plugin_that_has_ended_hands_out_nothing(run: Run) -> None:
    """A finished pod of NVIDIA's plugin is no second owner of the GPUs."""
    cluster = sound()
    nvidia_plugin(cluster, "n1", phase="Failed")
    assert verdicts(run, cluster)["no-foreign-plugin"]["result"] == "ok"


@pytest.mark.parametrize("restart", ["Always", ""])
def test_only_an_init_container_or_a_sidecar_requests(run: Run, restart: str) -> None:
    """No warning: the plugin confirms a sidecar's share, an init container's it may not."""
    cluster = sound()
    limits = {"limits": {"aliyun.com/gpu-mem": "2"}}
    box = {"name": "i", "resources": limits, **({"restartPolicy": restart} if restart else {})}
    spec = {"containers": [{"name": "main"}], "initContainers": [box]}
    confirmed = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"} if restart else {}
    cluster.pod("side", node="n1", index=1, spec=spec, annotations=confirmed)
    found = verdicts(run, cluster)
    assert {name: c["findings"] for name, c in found.items() if c["result"] != "ok"} == {}


def test_a_node_without_power_is_named_as_the_reason(run: Run) -> None:
    """Its pods are not ready either: a further replica of the extender is there already."""
    cluster = sound()
    unready(cluster, "n1")
    for name in ("plugin-n1", "scheduler-n1"):
        unready(cluster, name)
    found = verdicts(run, cluster)
    (plugin_finding,) = found["plugin-runs"]["findings"]
    assert plugin_finding == "gpushare/plugin-n1 on n1 is not ready, as its node is not"
    (replica_finding,) = found["extender-replicas"]["findings"]
    only = "only gpushare/scheduler-n2 is ready; not ready: gpushare/scheduler-n1"
    assert replica_finding == only


def test_restarts_come_with_the_reason_that_no_log_has(run: Run) -> None:
    """The kernel leaves no line in the log of a container that it ends for its memory."""
    cluster = sound()
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    phase(cluster, "scheduler-n1", containerStatuses=[{"restartCount": 9, "lastState": ended}])
    (finding,) = verdicts(run, cluster)["few-restarts"]["findings"]
    assert finding == "gpushare/scheduler-n1 has restarted 9 times (OOMKilled)"


def test_pods_that_other_schedulers_placed_are_named(run: Run) -> None:
    """A running pod with a share that no scheduler of ours saw, with the name to set."""
    cluster = sound()
    item(cluster, "p")["spec"]["schedulerName"] = "default-scheduler"
    assert verdicts(run, cluster)["scheduled-by-us"]["findings"] == [
        (
            "default/p on n1: no scheduler that calls the extender has the name default-scheduler: "
            "set spec.schedulerName to gpushare-scheduler"
        )
    ]


def test_the_clusters_own_scheduler_may_call_the_extender(run: Run) -> None:
    """A configuration without profiles is for default-scheduler: such pods are ours."""
    cluster = sound()
    rewrite(cluster, "s", "profiles: [{schedulerName: gpushare-scheduler}]", "")
    for pod in (each for each in cluster.items if each["kind"] == "Pod"):
        pod["spec"]["schedulerName"] = "default-scheduler"
    waiting(cluster, spec={"schedulerName": "default-scheduler"})
    found = verdicts(run, cluster)
    assert (found["scheduled-by-us"]["result"], found["scheduler-named"]["result"]) == ("ok", "ok")


def test_an_extender_that_does_not_nominate_needs_no_right_to(run: Run) -> None:
    """Before Kubernetes 1.22 the chart starts it with ``off``."""
    cluster = sound()
    for name in ("n1", "n2"):
        rewrite(cluster, f"scheduler-{name}", "--nominate=refused", "--nominate=off")
        rewrite(cluster, f"scheduler-{name}", "v1.37.1", "v1.20.2")
    rewrite(cluster, "extender-role", '"patch"', '"get"')
    rewrite(cluster, "extender-limit", "Deny", "Audit")
    found = verdicts(run, cluster)
    of_nomination = {found[name]["result"] for name in found if name.startswith("nomination-")}
    assert of_nomination == {"ok"}


def test_the_last_of_two_flags_decides_whether_an_extender_nominates(run: Run) -> None:
    """As the extender reads them: arguments of the values come after those of the chart."""
    cluster = sound()
    for name in ("n1", "n2"):
        both = '"--nominate=off", "--nominate=refused"'
        rewrite(cluster, f"scheduler-{name}", '"--nominate=refused"', both)
    rewrite(cluster, "extender-limit", "Deny", "Audit")
    assert verdicts(run, cluster)["nomination-limited"]["result"] == "warn"


def test_a_gpu_that_its_node_has_lost_is_not_unhealthy_too(run: Run) -> None:
    """A pod still holds it: it is named once, with what to do about the pod."""
    cluster = sound().pod("x", 1, node="n1", index=5, annotations=CONFIRMED)
    found = verdicts(run, cluster)
    assert (found["gpus-exist"]["result"], found["gpus-healthy"]["result"]) == ("fail", "ok")


def test_a_node_for_claims_without_a_slice_needs_no_device_plugin_resource(run: Run) -> None:
    """It is labelled for shares too; what is missing is its slice."""
    cluster = sound()
    item(cluster, "n3")["metadata"]["labels"]["gpushare"] = "true"
    cluster.items.remove(item(cluster, "n3-gpu.gpushare.io"))
    found = verdicts(run, cluster)
    assert found["plugin-registered"]["result"] == "ok"
    assert found["claims-published"]["result"] != "ok"


def test_a_node_that_does_not_exist_has_lost_no_gpu(run: Run) -> None:
    """Its pods are named once, with what to do about the node."""
    found = verdicts(run, sound().pod("x", 1, node="gone", index=0, annotations=CONFIRMED))
    assert (found["nodes-exist"]["result"], found["gpus-exist"]["result"]) == ("warn", "ok")
