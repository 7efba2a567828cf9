"""``gpushare idle --evict``: notice first, the eviction later, and nobody who used a GPU."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from evictingserver import (
    IDLE_LEASE,
    NO_KIND,
    NO_ROLE,
    OVERLOADED,
    PODS,
    QUOTA,
    WEBHOOK,
    EvictingServer,
)
from invoking import Run, WhatIfOutcome
from jsonpatches import PatchError, patched
from test_memory_in_use import path, plugin

from gpucore.sizing.idle_eviction import MeasuredPod
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpuinspect.idle.changes import give_notice
from gpuinspect.idle.reading import measured_again
from gpuinspect.terminal import ages
from gpukube.errors import ConfigError

pytestmark = pytest.mark.slow

Object = dict[str, Any]
FORMS = Path(__file__).parent / "golden" / "forms"
HOUR = 3600.0
START = datetime(2026, 1, 10, tzinfo=UTC).timestamp()
NOTICE = "gpushare/idle-notice"


def owned(name: str, kind: str = "ReplicaSet") -> Object:
    """Metadata of a pod of a controller."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": f"rs-{name}", "uid": f"uid-rs-{name}"}
    return {"ownerReferences": [{**owner, "controller": True}]}


class Idle:
    """A node with four GPUs, and pods that a test makes idle; time passes when a test says so."""

    def __init__(self, run: Run, folder: Path, *, lease_path: str = IDLE_LEASE) -> None:
        cluster = FakeCluster().node("n1", gpus=[Gpu(16)] * 4)
        for index, name in enumerate(("a", "b", "busy", "bare")):
            metadata = {} if name == "bare" else owned(name)
            cluster.pod(name, 8, node="n1", index=index, metadata=metadata)
        self.server = EvictingServer(cluster, lease_path=lease_path)
        for pod in self.server.pods:
            pod["selfLink"] = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        self.server.pods.append(plugin("n1"))
        self._run, self._folder = run, folder
        self.now = START
        self.idle_since = {"a": START - 20 * HOUR, "b": START - 30 * HOUR, "busy": 0.0}
        self.idle_since["bare"] = START - 40 * HOUR
        self.measure()

    def measure(self, *, age: float = 1.0) -> None:
        """Let the plugin report, as it does at every read."""
        order = ("a", "b", "busy", "bare")
        gpus = [
            {"index": i, "uuid": f"GPU-n1-{i}", "usedBytes": 0, "unattributedBytes": 0}
            | {"pods": [self._row(name)] if name in self.idle_since else []}
            for i, name in enumerate(order)
        ]
        known = {"apiVersion": "gpushare/v1", "kind": "NodeUsage", "node": "n1"}
        self.server.objects[path("n1")] = {**known, "measuredAt": self.now - age, "gpus": gpus}

    def _row(self, name: str) -> Object:
        named = {"namespace": "default", "name": name, "containers": ["main"]}
        return {**named, "usedBytes": 0, "idleSince": self.idle_since[name]}

    def later(self, hours: float) -> None:
        """Hours pass, and the plugin reports again."""
        self.now += hours * HOUR
        self.measure()

    def __call__(self, *args: str, mode: str = "--evict") -> WhatIfOutcome:
        config = str(self.server.kubeconfig(self._folder))
        flags = (mode, "--for", "12h", "--plugin-namespace", "gpushare", "--kubeconfig", config)
        return self._run("idle", *flags, *args)

    def outcomes(self, *args: str, mode: str = "--evict") -> dict[str, str]:
        """What became of each pod by name."""
        found = json.loads(self(*args, "-o", "json", mode=mode).out)
        return {each["name"]: each["outcome"] for each in found["items"]}

    def notice(self, name: str) -> Object | None:
        """The notice on a pod."""
        text = self.server.pod(name)["metadata"]["annotations"].get(NOTICE)
        return None if text is None else dict(json.loads(text))


@pytest.fixture
def idle(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    """With the time of the test."""
    made = Idle(run, tmp_path)
    monkeypatch.setattr(ages, "now", lambda: datetime.fromtimestamp(made.now, UTC))
    with made.server.serving():
        yield made


def test_an_idle_pod_of_a_node_with_exclusive_gpus_alone_gets_notice(idle: Idle) -> None:
    """As `gpushare idle` lists it."""
    for node in idle.server.lists["/api/v1/nodes"]:
        node["status"]["capacity"] = node["status"]["allocatable"] = {"aliyun.com/gpu": "4"}
    pod = idle.server.pod("a")
    pod["metadata"]["annotations"] = {"ALIYUN_COM_GPU_GROUP": "0"}
    pod["spec"]["containers"][0]["resources"]["limits"] = {"aliyun.com/gpu": "1"}
    assert idle.outcomes()["a"] == "noticed"


def test_a_pod_with_memory_in_use_that_runs_no_work_is_not_evicted(idle: Idle) -> None:
    """It is listed without --evict; what it has in memory would be lost."""
    idle.idle_since["a"] = 0.0
    plain = idle._row
    idle._row = lambda name: {**plain(name), "noWorkSince": START - 30 * HOUR}  # type: ignore[method-assign]
    idle.measure()
    assert set(idle.outcomes(mode="--dry-run")) == {"b", "bare"}


def test_a_dry_run_changes_nothing(idle: Idle) -> None:
    """It says what would happen."""
    outcome = idle(mode="--dry-run")
    assert outcome.code == 0
    assert [line.split()[1:6] for line in outcome.out.splitlines()[1:4]] == [
        ["bare", "pod/bare", "40h", "spared", "-"],
        ["b", "replicaset/rs-b", "30h", "noticed", "2026-01-11T00:00Z"],
        ["a", "replicaset/rs-a", "20h", "noticed", "2026-01-11T00:00Z"],
    ]
    last = outcome.out.splitlines()[-1]
    assert last == "dry run: --evict gives notice to 2 pods, 1 pod spared"
    assert (idle.server.events, idle.server.lease, idle.server.evicted) == ([], None, [])
    assert idle.notice("a") is None


@pytest.mark.parametrize("form", ["table", "json", "yaml", "name"])
def test_every_form_is_its_golden_file(idle: Idle, form: str) -> None:
    """To the byte; UPDATE_GOLDEN=1 writes the files anew."""
    idle("--max-notices", "1")
    idle.later(24)
    printed = idle("-o", form).out
    file = FORMS / f"idle-eviction.{form}"
    if "UPDATE_GOLDEN" in os.environ:
        file.write_text(printed, encoding="utf-8")
    assert printed == file.read_text(encoding="utf-8")


def test_notice_comes_first_and_the_eviction_after_the_grace_time(idle: Idle) -> None:
    """Three runs; the pod in use and the one without a controller stay."""
    assert idle.outcomes() == {"bare": "spared", "b": "noticed", "a": "noticed"}
    assert idle.notice("b") == {
        "pod": "uid-default-b",
        "noticedAt": int(START),
        "evictAfter": int(START + 24 * HOUR),
    }
    (event, _) = idle.server.events
    assert (event["reason"], event["involvedObject"]["name"]) == ("GpuIdleNotice", "b")
    assert event["message"] == (
        "holds GPU memory and has used none of it since 2026-01-08 18:00 UTC: it is evicted after"
        " 2026-01-11 00:00 UTC unless it uses its GPU or has the label gpushare/idle-allowed=true"
    )
    idle.later(23)
    assert idle.outcomes() == {"bare": "spared", "b": "waits", "a": "waits"}
    assert idle.server.evicted == []
    idle.later(1)
    done = idle()
    assert done.out.splitlines()[-1] == "evicted 2 pods, 1 pod spared"
    assert idle.server.evicted == ["b", "a"]
    about = [(e["reason"], e["involvedObject"]["kind"]) for e in idle.server.events[2:]]
    assert about == [("GpuIdlePodEvicted", "Pod"), ("GpuIdlePodEvicted", "ReplicaSet")] * 2
    assert idle.server.lease is not None
    assert idle.server.lease["spec"]["holderIdentity"] == ""


def notice_patch() -> list[Object]:
    """What is sent to pod ``u`` in version 7, which has no annotations."""
    sent: list[Object] = []
    kube: Any = SimpleNamespace(post=lambda *_: b"", json_patch=lambda _, patch: sent.extend(patch))
    pod = Pod(PodUid("u"), "team", "p", NodeName("n1"), resource_version="7")
    give_notice(kube, MeasuredPod(pod, None, 0.0, START), START, START + HOUR)
    return sent


def test_a_pod_without_annotations_gets_notice() -> None:
    """It uses its GPU by a claim, so no scheduler has written any on it."""
    made = patched({"metadata": {"uid": "u", "resourceVersion": "7"}}, notice_patch())
    assert json.loads(made["metadata"]["annotations"][NOTICE])["pod"] == "u"


@pytest.mark.parametrize("changed", [{"uid": "v"}, {"resourceVersion": "8"}])
def test_a_notice_is_for_exactly_the_pod_that_was_read(changed: dict[str, str]) -> None:
    """After etcd was restored, another pod of the name can have the same version."""
    with pytest.raises(PatchError):
        patched({"metadata": {"uid": "u", "resourceVersion": "7"} | changed}, notice_patch())


def test_each_notice_has_the_whole_grace_time_though_the_run_takes_long(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute passes at every look at the clock; the event would name an earlier time."""

    def minute_later() -> datetime:
        idle.now += 60
        return datetime.fromtimestamp(idle.now, UTC)

    monkeypatch.setattr(ages, "now", minute_later)
    found = json.loads(idle("-o", "json").out)["items"]
    after = {each["name"]: each["evictAfter"] for each in found if each["outcome"] == "noticed"}
    assert set(after) == {"a", "b"}
    for name, shown in after.items():
        notice = idle.notice(name)
        assert notice is not None
        assert notice["evictAfter"] - notice["noticedAt"] == 24 * HOUR
        assert datetime.fromisoformat(shown).timestamp() == notice["evictAfter"]


def test_a_pod_that_used_its_gpu_since_the_notice_is_not_evicted(idle: Idle) -> None:
    """Idle again, it gets another notice."""
    idle()
    idle.idle_since["a"] = 0
    idle.idle_since["b"] = START + 12 * HOUR
    idle.later(24)
    assert idle.outcomes() == {"bare": "spared", "b": "noticed"}
    assert idle.server.evicted == []


def test_use_between_the_read_and_the_eviction_keeps_the_pod(idle: Idle) -> None:
    """The plugin is read again before each eviction."""
    idle()
    idle.later(24)

    def used(name: str) -> None:
        assert name == "b"
        idle.idle_since["a"] = 0
        idle.measure()

    idle.server.before = used
    outcome = idle()
    assert "it has used its GPU meanwhile" in outcome.out
    assert idle.server.evicted == ["b"]


def test_a_pod_of_the_same_name_elsewhere_is_no_reason_to_evict(idle: Idle) -> None:
    """The plugin reports another namespace's pod instead when it is read again."""
    idle()
    idle.later(24)

    def replaced(_name: str) -> None:
        plain = idle._row
        idle._row = lambda name: {**plain(name), "namespace": "other"}  # type: ignore[method-assign]
        idle.measure()

    idle.server.before = replaced
    assert idle.outcomes() == {"bare": "spared", "b": "evicted", "a": "spared"}
    assert idle.server.evicted == ["b"]


def test_a_label_between_the_read_and_the_eviction_keeps_the_pod(idle: Idle) -> None:
    """The version that was read is a precondition."""
    idle()
    idle.later(24)

    def labelled(name: str) -> None:
        metadata = idle.server.pod(name)["metadata"]
        metadata |= {"labels": {"gpushare/idle-allowed": "true"}, "resourceVersion": "99"}

    idle.server.before = labelled
    assert idle.outcomes() == {"bare": "spared", "b": "refused", "a": "refused"}
    assert idle.server.evicted == []


def test_a_disruption_budget_keeps_its_pod_and_no_other(idle: Idle) -> None:
    """The refusal is named, and the run goes on."""
    idle()
    idle.later(24)
    idle.server.refused["b"] = 429
    outcome = idle()
    assert "a PodDisruptionBudget keeps default/b" in outcome.out
    assert (outcome.code, idle.server.evicted) == (0, ["a"])


def test_two_disruption_budgets_of_a_pod_keep_it_and_no_other(idle: Idle) -> None:
    """The Eviction API answers 500 for the pod, and the run goes on with the next one."""
    idle()
    idle.later(24)
    idle.server.refused["b"] = 500
    outcome = idle()
    assert "several PodDisruptionBudgets select default/b" in outcome.out
    assert (outcome.code, idle.server.evicted) == (0, ["a"])


@pytest.mark.parametrize("status", [400, 403])
def test_a_pod_that_admission_keeps_keeps_no_other(idle: Idle, status: int) -> None:
    """The webhook of one namespace must not stop the evictions of all; its sentence is shown."""
    idle()
    idle.later(24)
    idle.server.refused["b"], idle.server.why = status, WEBHOOK
    outcome = idle()
    assert f"admission rejects the request for default/b: {WEBHOOK}" in outcome.out
    assert (outcome.code, idle.server.evicted) == (0, ["a"])


@pytest.mark.parametrize(
    ("status", "why"), [(401, NO_ROLE), (403, NO_ROLE), (400, NO_KIND), (429, OVERLOADED)]
)
def test_a_refusal_of_all_requests_ends_the_run(idle: Idle, status: int, why: str) -> None:
    """A missing right, a kind that the API server lacks, or no time for it; with its sentence."""
    idle()
    idle.later(24)
    idle.server.refused["b"], idle.server.why = status, why
    outcome = idle()
    assert (outcome.code, idle.server.evicted) == (1, [])
    assert why in outcome.err


def test_a_lease_that_admission_refuses_ends_the_run(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing about the pod whose turn it was."""
    patched = idle.server.patched

    def refused(path: str, operations: list[Object]) -> tuple[int, Object]:
        held = idle.server.lease is not None and path == IDLE_LEASE
        return (403, {"message": WEBHOOK}) if held else patched(path, operations)

    monkeypatch.setattr(idle.server, "patched", refused)
    outcome = idle()
    assert (outcome.code, idle.notice("a"), idle.notice("b")) == (1, None, None)
    assert "refused" not in outcome.out


def test_another_failure_of_the_api_server_ends_the_run(idle: Idle) -> None:
    """It is not known whether the pod was evicted."""
    idle()
    idle.later(24)
    idle.server.refused["b"] = 503
    outcome = idle()
    assert (outcome.code, idle.server.evicted) == (1, [])
    assert "503" in outcome.err


def test_a_refused_eviction_leaves_the_maximum_to_other_pods(idle: Idle) -> None:
    """Only evictions count against the maximum."""
    idle()
    idle.later(24)
    idle.server.refused["b"] = 429
    assert idle.outcomes("--max-evictions", "1") == {
        "bare": "spared",
        "b": "refused",
        "a": "evicted",
    }


def test_the_attempts_of_a_run_are_bounded(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many evictions the cluster refuses; the reason is named."""
    monkeypatch.setattr("gpuinspect.idle.run.ATTEMPTS", 1)
    idle()
    idle.later(24)
    idle.server.refused["b"] = 429
    outcome = idle("--max-evictions", "1")
    assert "this run has made 1 attempt, 1 times its maximum" in outcome.out
    assert (outcome.code, idle.server.evicted) == (0, [])


def test_a_run_evicts_and_notices_no_more_than_its_maximum(idle: Idle) -> None:
    """The longest idle first; the others are for the next run."""
    assert idle.outcomes("--max-notices", "1")["a"] == "postponed"
    assert idle.notice("a") is None
    idle()
    idle.later(30)
    assert idle.outcomes("--max-evictions", "1") == {
        "bare": "spared",
        "b": "evicted",
        "a": "postponed",
    }


def test_without_the_event_nobody_has_notice(idle: Idle) -> None:
    """The annotation, from which the grace time counts, is written after the event."""
    idle.server.no_events, idle.server.why = 403, NO_ROLE
    outcome = idle()
    assert outcome.code == 1
    assert "postponed" in outcome.out
    assert [idle.notice(name) for name in "ab"] == [None, None]


def test_a_dry_run_shows_what_the_cluster_refuses(idle: Idle) -> None:
    """By a dry run of each request; a note states where the right to evict is missing."""
    idle()
    idle.later(24)
    idle.server.refused["b"] = 429
    outcomes = idle.outcomes(mode="--dry-run")
    assert (outcomes["b"], outcomes["a"]) == ("refused", "evicted")
    idle.server.refused.update({"b": 403, "a": 403})
    idle.server.why = NO_ROLE
    outcome = idle(mode="--dry-run")
    assert "--evict evicts 2 pods" in outcome.out
    assert outcome.err.count("PodDisruptionBudgets were not checked") == 1
    assert idle.server.evicted == []


def test_a_lost_reply_to_an_eviction_leaves_its_outcome_open(idle: Idle) -> None:
    """The API server may have evicted the pod: the run ends, and says so."""
    idle()
    idle.later(24)
    idle.server.refused["b"], idle.server.why = 503, "the reply is lost"
    outcome = idle()
    assert outcome.code == 1
    assert "error: default/b may be evicted: POST" in outcome.err
    assert [line.split()[4] for line in outcome.out.splitlines()[1:4]].count("postponed") == 2


def test_credentials_that_end_in_the_middle_hide_no_eviction(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the pod that was evicted before."""
    idle()
    idle.later(24)

    def read(kube: Any, pod: MeasuredPod, found: Any) -> MeasuredPod:
        if pod.name == "a":
            raise ConfigError("the credential plugin fails")
        return measured_again(kube, pod, found)

    monkeypatch.setattr("gpuinspect.idle.run.measured_again", read)
    outcome = idle()
    rows = {line.split()[1]: line.split()[4] for line in outcome.out.splitlines()[1:4]}
    assert (rows["b"], rows["a"]) == ("evicted", "postponed")
    assert (outcome.code, "the credential plugin fails" in outcome.err) == (1, True)


def test_a_quota_of_events_keeps_the_pods_of_its_namespace_only(idle: Idle) -> None:
    """They get no notice, and the run goes on with the next pod."""
    idle.server.no_events, idle.server.why = 403, QUOTA
    outcome = idle()
    assert (outcome.code, outcome.out.count(QUOTA)) == (0, 2)
    assert [idle.notice(name) for name in "ab"] == [None, None]


def test_pods_without_a_controller_are_evicted_on_request_only(idle: Idle) -> None:
    """With --bare-pods."""
    assert idle.outcomes("--bare-pods")["bare"] == "noticed"


@pytest.mark.parametrize("report", ["stale", "none", "another pod's"])
def test_pods_of_unknown_history_are_spared(idle: Idle, report: str) -> None:
    """A notice that they had changes nothing."""
    idle()
    idle.later(24)
    if report == "stale":
        idle.measure(age=301)
    elif report == "none":
        del idle.server.objects[path("n1")]
    else:
        for name in "ab":
            moment = datetime.fromtimestamp(START, UTC).isoformat()
            idle.server.pod(name)["metadata"]["creationTimestamp"] = moment
    outcomes = idle.outcomes()
    assert (outcomes["a"], outcomes["b"]) == ("spared", "spared")
    assert idle.server.evicted == []


def test_a_tenants_pod_that_looks_like_a_plugin_is_not_read(idle: Idle) -> None:
    """However many such pods there are, nobody's pod is idle by their word."""
    report = idle.server.objects.pop(path("n1"))
    for number in range(3):
        forged = plugin("n1", namespace="hostile")
        forged["metadata"] |= {"uid": f"forged-{number}"}
        idle.server.pods.append(forged)
    idle.server.objects[path("n1", namespace="hostile")] = report
    assert set(idle.outcomes().values()) == {"spared"}
    refused = idle("--plugin-namespace", "")
    assert refused.code == 2
    assert "--plugin-namespace is needed" in " ".join(refused.err.split())


def test_a_forged_notice_concerns_its_own_pod_only(idle: Idle) -> None:
    """A tenant who forges an early one loses the grace time of that pod, and no other has it."""
    at = int(START - 25 * HOUR)
    notice = {"pod": "uid-default-b", "noticedAt": at, "evictAfter": at}
    for name in "ab":
        idle.server.pod(name)["metadata"]["annotations"][NOTICE] = json.dumps(notice)
    assert idle.outcomes() == {"bare": "spared", "b": "evicted", "a": "noticed"}


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("activity", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_of_activity_that_no_clock_shows_concerns_its_own_pod_only(
    idle: Idle, activity: str, form: str
) -> None:
    """With its zone it is a year that the table could not write; other pods are listed."""
    annotations = idle.server.pod("a")["metadata"]["annotations"]
    annotations["notebooks.kubeflow.org/last-activity"] = activity
    idle.measure(age=400)
    outcome = idle("-o", form)
    assert outcome.code == 0
    assert "rs-b" in outcome.out
    idle.measure()
    noticed = {"bare": "spared", "b": "noticed"}
    kept = activity.startswith("9999")
    assert idle.outcomes() == (noticed if kept else {**noticed, "a": "noticed"})


def test_a_notebook_is_spared_with_what_to_do_instead(idle: Idle) -> None:
    """Its StatefulSet would create the pod again."""
    metadata = idle.server.pod("b")["metadata"]
    metadata |= {**owned("b", "StatefulSet"), "labels": {"notebook-name": "nb"}}
    text = " ".join(idle().out.split())
    assert "Notebook nb would create it again: stop it by the annotation" in text


def test_runs_exclude_each_other(idle: Idle) -> None:
    """A Lease that is held ends the run before it reads."""
    renewed = datetime.fromtimestamp(START, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "renewTime": renewed, "leaseDurationSeconds": 120}
    idle.server.lease = {"metadata": {"resourceVersion": "5"}, "spec": spec}
    outcome = idle()
    assert outcome.code == 1
    assert "another run, other, holds Lease gpushare-idle" in outcome.err
    assert idle.server.events == []


def test_a_lease_is_held_for_as_long_as_its_holder_wrote(idle: Idle) -> None:
    """Another version may take it for longer than this one does."""
    renewed = datetime.fromtimestamp(START - 300, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "renewTime": renewed, "leaseDurationSeconds": 600}
    idle.server.lease = {"metadata": {"resourceVersion": "5"}, "spec": spec}
    assert idle().code == 1
    spec["leaseDurationSeconds"] = 240
    assert idle().code == 0


def test_a_run_that_loses_its_lease_evicts_no_further(idle: Idle) -> None:
    """It learns that before the next eviction."""
    idle()
    idle.later(24)

    def taken(_name: str) -> None:
        assert idle.server.lease is not None
        idle.server.lease["metadata"]["resourceVersion"] = "999"

    idle.server.before = taken
    outcome = idle()
    assert outcome.code == 1
    assert "another run took Lease gpushare-idle" in outcome.err
    assert idle.server.evicted == ["b"]


def test_unknown_allocations_end_the_run(idle: Idle) -> None:
    """Without the right to list claims it is not known which pods have GPUs."""
    idle.server.statuses["/apis/resource.k8s.io/v1/resourceclaims"] = 403
    outcome = idle()
    assert outcome.code == 1
    assert "allocations are unknown" in outcome.err
    assert idle.server.events == []


def test_only_the_chosen_namespace_and_nodes_are_touched(idle: Idle) -> None:
    """As for the list."""
    assert idle.outcomes("-n", "other") == {}
    assert idle.outcomes("-l", "pool=none") == {}
    assert idle("-n", "other").out == "no pod is idle\n"
    assert PODS in idle.server.lists
    assert idle("-o", "name").out == ""


def test_a_snapshot_cannot_be_changed(run: Run, cluster: FakeCluster) -> None:
    """Nor does it have memory in use."""
    outcome = run("idle", "--evict", "--plugin-namespace", "gpushare", on=cluster)
    assert outcome.code == 1
    assert "a snapshot does not have memory in use" in outcome.err
