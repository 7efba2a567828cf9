"""``gpushare defrag --apply``: evicts for a pod that then fits, and never more than that."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from evictingserver import NO_ROLE, OVERLOADED, PODS, WEBHOOK, EvictingServer
from invoking import Run, WhatIfOutcome
from test_advice import configured

pytestmark = pytest.mark.slow

Object = dict[str, Any]


def owned(name: str, kind: str = "ReplicaSet") -> Object:
    """Metadata of a pod of a controller of its own."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": f"rs-{name}", "uid": f"uid-rs-{name}"}
    return {"ownerReferences": [{**owner, "controller": True}]}


def from_now(seconds: int) -> str:
    """A time as the API server writes it."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def scattered(cluster: FakeCluster) -> FakeCluster:
    """``w`` waits for 15 units; b and c have to leave GPU 1 of n1, and fit n2."""
    for name in ("n1", "n2"):
        cluster.node(name, gpus=[Gpu(15), Gpu(15)])
    cluster.pod("a", 14, node="n1", index=0)
    cluster.pod("b", 8, node="n1", index=1, metadata=owned("b"))
    cluster.pod("c", 7, node="n1", index=1, metadata=owned("c"))
    cluster.pod("d", 7, node="n2", index=0).pod("e", 7, node="n2", index=1)
    return cluster.pod("w", 15, phase="Pending")


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[EvictingServer]:
    """The scattered cluster behind an API server."""
    with EvictingServer(scattered(cluster)).serving() as serving:
        assert isinstance(serving, EvictingServer)
        yield serving


class Defrag:
    """The command against the server."""

    def __init__(self, run: Run, server: EvictingServer, folder: Path) -> None:
        self._run, self._flags = run, ("--kubeconfig", str(server.kubeconfig(folder)))

    def __call__(self, *args: str) -> WhatIfOutcome:
        return self._run("defrag", *args, *self._flags)


@pytest.fixture
def defrag(run: Run, server: EvictingServer, tmp_path: Path) -> Defrag:
    """Runs ``gpushare defrag``."""
    return Defrag(run, server, tmp_path)


def test_the_plan_alone_changes_nothing(defrag: Defrag, server: EvictingServer) -> None:
    """Without --apply the pods are named; their evictions are requested as a dry run only."""
    outcome = defrag()
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "POD        FROM                       TO",
        "default/b  8 GiB on GPU 1 of node n1  8 GiB on GPU 0 of node n2",
        "default/c  7 GiB on GPU 1 of node n1  7 GiB on GPU 1 of node n2",
        "dry run: --apply evicts 2 pods so that default/w fits node n1",
    ]
    assert (server.evicted, server.events, server.lease) == ([], [], None)
    assert server.tried == ["b", "c"]


def test_apply_evicts_the_plan_and_records_events(defrag: Defrag, server: EvictingServer) -> None:
    """Every pod is tried first; then one after the other, with events on all concerned."""
    outcome = defrag("--apply")
    assert outcome.out.splitlines()[-1] == "evicted 2 of 2 pods so that default/w fits node n1"
    assert (server.tried, server.evicted) == (["b", "c"], ["b", "c"])
    about = [(e["involvedObject"]["kind"], e["involvedObject"]["name"]) for e in server.events]
    for name in "bc":
        assert {("Pod", name), ("ReplicaSet", f"rs-{name}")} <= set(about)
    assert about.count(("Pod", "w")) == 2
    owner = next(e for e in server.events if e["involvedObject"]["kind"] == "ReplicaSet")
    assert owner["involvedObject"]["apiVersion"] == "apps/v1"
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""


def test_the_next_run_waits_for_deletions_and_serves_the_pod_once(
    defrag: Defrag, server: EvictingServer
) -> None:
    """While a pod of the last run is being deleted nothing is evicted, nor for the same pod."""
    defrag("--apply")
    assert "still being deleted" in defrag("--apply").out
    server.pods[:] = [p for p in server.pods if "deletionTimestamp" not in p["metadata"]]
    for name in ("b-new", "c-new"):  # the scheduler put them back, where they were
        pod = server.pod(name)
        pod["spec"]["nodeName"] = "n1"
        pod["metadata"]["annotations"] = {"ALIYUN_COM_GPU_MEM_IDX": "1"}
        pod["status"] = {"phase": "Running"}
    outcome = defrag("--apply")
    assert outcome.out == "nothing is evicted: no waiting pod would fit by it\n"
    assert "default/w: pods were evicted for it within the last hour" in outcome.err
    assert server.evicted == ["b", "c"]


def test_a_disruption_budget_stops_the_plan_before_its_first_eviction(
    defrag: Defrag, server: EvictingServer
) -> None:
    """The dry run of c is refused, so b is not evicted in vain."""
    server.refused["c"] = 429
    outcome = defrag("--apply")
    assert (outcome.code, server.evicted) == (0, [])
    assert "nothing is evicted: a PodDisruptionBudget keeps default/c" in outcome.out
    assert "note: a PodDisruptionBudget keeps default/c" in outcome.err


def test_the_plan_alone_is_one_that_disruption_budgets_permit(
    defrag: Defrag, server: EvictingServer
) -> None:
    """It shows what --apply would do."""
    server.refused["c"] = 429
    outcome = defrag()
    assert outcome.out.startswith("nothing is evicted: a PodDisruptionBudget keeps default/c")
    assert "note: a PodDisruptionBudget keeps default/c" in outcome.err


def test_who_may_not_evict_sees_the_plan_without_disruption_budgets(
    defrag: Defrag, server: EvictingServer
) -> None:
    """A note states that they are not known."""
    server.refused["b"], server.why = 403, NO_ROLE
    outcome = defrag()
    assert (outcome.code, "--apply evicts 2 pods" in outcome.out) == (0, True)
    assert "note: PodDisruptionBudgets were not checked" in outcome.err


def crowded(cluster: FakeCluster, *, namespace: str) -> FakeCluster:
    """``first`` waits for n1, where a has to leave; for n2 k of another namespace has to."""
    for name in ("n1", "n2", "n3"):
        cluster.node(name, gpus=[Gpu(15)], labels={"pool": name})
    cluster.pod("a", 8, node="n1", index=0, metadata=owned("a"))
    cluster.pod("k", 9, node="n2", index=0, namespace=namespace, metadata=owned("k"))
    return cluster.pod("x", 2, node="n3", index=0, namespace="gamma")


@pytest.fixture
def several(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> Iterator[tuple[EvictingServer, Defrag]]:
    """The cluster of :func:`crowded`, with waiting pods of two namespaces."""
    crowded(cluster, namespace="beta")
    for name, namespace, hour in (("first", "default", "00"), ("second", "beta", "12")):
        metadata = {"creationTimestamp": f"2026-01-01T{hour}:00:00Z"}
        selector = {"nodeSelector": {"pool": "n1"}} if name == "first" else {}
        cluster.pod(
            name, 15, phase="Pending", namespace=namespace, metadata=metadata, spec=selector
        )
    with EvictingServer(cluster).serving() as server:
        assert isinstance(server, EvictingServer)
        yield server, Defrag(run, server, tmp_path)


@pytest.mark.parametrize("status", [429, 500], ids=["one budget", "two budgets"])
def test_a_pod_that_the_cluster_keeps_does_not_stop_those_behind_it(
    several: tuple[EvictingServer, Defrag], status: int
) -> None:
    """The plan of another waiting pod is carried out in the same run."""
    server, defrag = several
    server.refused["a"] = status
    outcome = defrag("--apply")
    assert outcome.out.splitlines()[-1] == "evicted 1 of 1 pod so that beta/second fits node n2"
    assert server.evicted == ["k"]
    assert "PodDisruptionBudget" in outcome.err


@pytest.mark.parametrize("status", [400, 403])
def test_a_pod_that_admission_keeps_does_not_stop_plans_for_others(
    several: tuple[EvictingServer, Defrag], status: int
) -> None:
    """The webhook of one namespace must not stop the plans for all; its sentence is a note."""
    server, defrag = several
    server.refused["a"], server.why = status, WEBHOOK
    outcome = defrag("--apply")
    assert (outcome.code, server.evicted) == (0, ["k"])
    assert f"note: admission rejects the request for default/a: {WEBHOOK}" in outcome.err


def test_a_right_to_evict_that_is_missing_ends_the_run(
    several: tuple[EvictingServer, Defrag],
) -> None:
    """It is missing for every pod."""
    server, defrag = several
    server.refused["a"], server.why = 403, NO_ROLE
    outcome = defrag("--apply")
    assert (outcome.code, server.evicted) == (1, [])
    assert NO_ROLE in outcome.err


def test_an_overloaded_api_server_ends_the_run(several: tuple[EvictingServer, Defrag]) -> None:
    """Its 429 is no disruption budget, and other plans would be more requests."""
    server, defrag = several
    server.refused["a"], server.why = 429, OVERLOADED
    outcome = defrag("--apply")
    assert (outcome.code, server.evicted) == (1, [])
    assert "the API server is overloaded" in outcome.err


def test_another_plan_for_the_same_pod_is_searched(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """The cluster keeps a, the cheapest eviction, so k leaves for the pod."""
    crowded(cluster, namespace="default").pod("first", 15, phase="Pending")
    with EvictingServer(cluster).serving() as server:
        assert isinstance(server, EvictingServer)
        server.refused["a"] = 429
        outcome = Defrag(run, server, tmp_path)("--apply")
    assert outcome.out.splitlines()[-1].endswith("so that default/first fits node n2")
    assert server.evicted == ["k"]


def test_the_other_pods_of_a_refused_pods_controller_stay(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Their PodDisruptionBudget is mostly the same one."""
    crowded(cluster, namespace="default").pod("first", 15, phase="Pending")
    with EvictingServer(cluster).serving() as server:
        assert isinstance(server, EvictingServer)
        server.pod("k")["metadata"] |= owned("a")
        server.refused["a"] = 429
        outcome = Defrag(run, server, tmp_path)("--apply")
    assert "nothing is evicted: a PodDisruptionBudget keeps default/a" in outcome.out
    assert server.evicted == []


def test_refused_plans_for_one_namespace_leave_time_for_the_others(
    several: tuple[EvictingServer, Defrag], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After their maximum no plan is searched for pods of that namespace; a run has one too."""
    server, defrag = several
    server.refused["a"] = 429
    monkeypatch.setattr("gpuinspect.defrag.run.OF_A_NAMESPACE", 1)
    monkeypatch.setattr("gpuinspect.defrag.run.REFUSED_PLANS", 1)
    bounded = defrag("--apply")
    assert "nothing is evicted: the cluster refused 1 plans, the maximum of a run" in bounded.out
    assert server.evicted == []
    monkeypatch.setattr("gpuinspect.defrag.run.REFUSED_PLANS", 2)
    outcome = defrag("--apply")
    assert "default/first: the cluster refused too many plans" in outcome.err
    assert server.evicted == ["k"]


def test_a_budget_that_two_pods_share_stops_between_them(
    defrag: Defrag, server: EvictingServer
) -> None:
    """Both dry runs pass, the second eviction is refused, and it stays at one."""
    server.before = lambda name: server.refused.update({"c": 429} if name == "b" else {})
    outcome = defrag("--apply")
    assert server.evicted == ["b"]
    assert "evicted 1 of 2 pods" in outcome.out
    assert "PodDisruptionBudget" in outcome.out


@pytest.mark.parametrize(
    ("failure", "state"),
    [({"read": 503}, "no"), ({"c": 403}, "no"), ({"c": 503}, "unknown")],
    ids=["read", "right", "lost reply"],
)
def test_an_error_in_the_middle_names_what_was_done_and_what_was_not(
    defrag: Defrag, server: EvictingServer, failure: dict[str, int], state: str
) -> None:
    """The table says it of each pod; the exit code is 1, with the error and how to go on."""

    def failing(name: str) -> None:
        if name == "b":
            server.refused.update(failure)
            server.statuses.update({PODS: 503} if "read" in failure else {})

    server.before, server.why = failing, NO_ROLE
    outcome = defrag("--apply")
    rows = {line.split()[0]: line.split()[-1] for line in outcome.out.splitlines()[1:-1]}
    assert rows == {"default/b": "yes", "default/c": state}
    assert "evicted 1 of 2 pods so that default/w fits node n1; stopped: " in outcome.out
    words = " ".join(outcome.err.split())
    assert "default/w may still need the eviction of default/c: no run evicts" in words
    assert (outcome.code, "error: " in words) == (1, True)


def test_an_error_before_the_first_eviction_is_an_error_alone(
    defrag: Defrag, server: EvictingServer
) -> None:
    """Nothing was done that could be named."""
    server.before, server.why = lambda name: server.refused.update({name: 403}), NO_ROLE
    outcome = defrag("--apply")
    assert (outcome.code, outcome.out, server.evicted) == (1, "", [])
    assert "a right is missing" in outcome.err


def test_the_document_of_a_run_that_failed_has_the_evicted_pods(
    defrag: Defrag, server: EvictingServer
) -> None:
    """As the table has."""
    server.before = lambda _: server.statuses.update({PODS: 503})
    outcome = defrag("--apply", "-o", "json")
    found = json.loads(outcome.out)
    assert [each["evicted"] for each in found["evictions"]] == [True, False]
    assert "503" in found["stopped"]
    assert outcome.code == 1


def test_names_are_those_of_the_evicted_pods(defrag: Defrag, server: EvictingServer) -> None:
    """Without --apply those of the plan."""
    assert defrag("-o", "name").out == "pod/b\npod/c\n"
    server.before = lambda name: server.refused.update({"c": 429} if name == "b" else {})
    assert defrag("--apply", "-o", "name").out == "pod/b\n"
    assert server.evicted == ["b"]


def test_a_pod_that_was_replaced_meanwhile_is_not_evicted(
    defrag: Defrag, server: EvictingServer
) -> None:
    """A pod of the same name with another UID does not meet the precondition."""

    def replaced(name: str) -> None:
        if name == "b":
            server.pod("b")["metadata"]["uid"] = "uid-of-another"

    server.before = replaced
    outcome = defrag("--apply")
    assert server.evicted == []
    assert "stopped: default/b has changed" in outcome.out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("bind", "default/w does not wait any more"),
        ("take", "what-if does not place every pod of the plan any more"),
        ("annotate", "its annotation gpushare/defrag is never"),
    ],
)
def test_a_plan_that_no_longer_holds_ends(
    defrag: Defrag, server: EvictingServer, cluster: FakeCluster, change: str, reason: str
) -> None:
    """The state is read again before the second eviction."""

    def changed(name: str) -> None:
        if name != "b":
            return
        if change == "bind":
            server.pod("w")["spec"]["nodeName"] = "n1"
        elif change == "annotate":
            server.pod("c")["metadata"]["annotations"]["gpushare/defrag"] = "never"
        else:
            server.pods.append(FakeCluster().pod("x", 8, node="n2", index=0).items[0])

    server.before = changed
    outcome = defrag("--apply")
    assert server.evicted == ["b"]
    assert reason in outcome.out


def test_runs_exclude_each_other(defrag: Defrag, server: EvictingServer) -> None:
    """A Lease that is held and not expired ends the run before it plans."""
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "other", "renewTime": renewed, "leaseDurationSeconds": 120}
    server.lease = {"metadata": {"resourceVersion": "5"}, "spec": spec}
    outcome = defrag("--apply")
    assert "another run, other, holds Lease gpushare-defrag" in outcome.out
    assert server.evicted == []


def test_an_expired_lease_is_taken_over(defrag: Defrag, server: EvictingServer) -> None:
    """A run that died does not block the next ones for good."""
    renewed = (datetime.now(UTC) - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "dead", "renewTime": renewed, "leaseDurationSeconds": 120}
    server.lease = {"metadata": {"resourceVersion": "5"}, "spec": spec}
    defrag("--apply")
    assert server.evicted == ["b", "c"]


def test_a_run_that_lost_the_lease_evicts_nothing_more(
    defrag: Defrag, server: EvictingServer
) -> None:
    """Each eviction is written to the Lease first, under its resource version."""

    def taken(_: str) -> None:
        assert server.lease is not None
        server.lease["metadata"]["resourceVersion"] = "1000"

    server.before = taken
    outcome = defrag("--apply")
    assert server.evicted == ["b"]
    assert "stopped: another run took Lease gpushare-defrag" in outcome.out


def test_a_history_is_written_before_the_eviction(defrag: Defrag, server: EvictingServer) -> None:
    """So that a run which dies has counted it."""
    seen: list[int] = []

    def counted(_: str) -> None:
        assert server.lease is not None
        text = server.lease["metadata"]["annotations"]["gpushare/defrag-history"]
        seen.append(len(json.loads(text)))

    server.before = counted
    defrag("--apply")
    assert seen == [1, 2]


def test_budgets_count_the_runs_of_the_last_hour(defrag: Defrag, server: EvictingServer) -> None:
    """One more eviction than the budget leaves no plan."""
    assert "nothing is evicted" in defrag("--apply", "--max-evictions", "1").out
    assert "nothing is evicted" in defrag("--apply", "--max-per-namespace", "1").out
    assert "nothing is evicted" in defrag("--apply", "--max-per-node", "1").out
    assert server.evicted == []


def test_a_tenant_cannot_evict_pods_of_another_namespace(
    defrag: Defrag, server: EvictingServer
) -> None:
    """Waiting pods move pods of their own namespace only, unless an operator allows more."""
    server.pod("w")["metadata"]["namespace"] = "hostile"
    assert "nothing is evicted" in defrag("--apply").out
    server.pod("w")["spec"]["priority"] = -1
    assert "nothing is evicted" in defrag("--apply", "--across-namespaces").out
    assert server.evicted == []
    server.pod("w")["spec"]["priority"] = 0
    defrag("--apply", "--across-namespaces")
    assert server.evicted == ["b", "c"]
    texts = [e["message"] for e in server.events if e["involvedObject"]["namespace"] == "default"]
    assert texts
    assert not any("w" in text.split() or "hostile" in text for text in texts)


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({"ownerReferences": []}, {}),
        (owned("c", "DaemonSet"), {}),
        (owned("c", "Job"), {}),
        ({"labels": {"gpu-topology": "g", "gpu-topology-replica": "2"}}, {}),
        ({"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}}, {}),
        ({"labels": {"leaderworkerset.sigs.k8s.io/name": "llm"}}, {}),
        ({**owned("c", "StatefulSet"), "labels": {"notebook-name": "nb"}}, {}),
        ({}, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]}),
    ],
    ids=[
        "no controller",
        "DaemonSet",
        "Job",
        "gang",
        "gang without a size",
        "LeaderWorkerSet",
        "Notebook",
        "volume",
    ],
)
def test_pods_that_would_lose_their_work_stay(
    defrag: Defrag, server: EvictingServer, metadata: Object, spec: Object
) -> None:
    """Neither pods without a controller nor members of gangs are evicted."""
    server.pod("c")["metadata"] |= metadata
    server.pod("c")["spec"] |= spec
    assert "nothing is evicted" in defrag("--apply").out
    assert server.evicted == []


def test_a_notebook_moves_where_its_owner_allows_it(defrag: Defrag, server: EvictingServer) -> None:
    """As a pod of a Job."""
    metadata = server.pod("c")["metadata"]
    metadata |= {**owned("c", "StatefulSet"), "labels": {"notebook-name": "nb"}}
    metadata["annotations"] |= {"gpushare/defrag": "allow"}
    defrag("--apply")
    assert server.evicted == ["b", "c"]


def test_the_only_pod_of_its_group_in_a_leaderworkerset_may_leave(
    defrag: Defrag, server: EvictingServer
) -> None:
    """No other pod restarts with it."""
    metadata = server.pod("c")["metadata"]
    metadata["labels"] = {"leaderworkerset.sigs.k8s.io/name": "llm"}
    metadata["annotations"] |= {"leaderworkerset.sigs.k8s.io/size": "1"}
    defrag("--apply")
    assert server.evicted == ["b", "c"]


def test_a_pod_that_got_its_node_during_the_run_is_still_named(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """The notes are of the pods that waited when the run began."""
    metadata = {"creationTimestamp": "2025-12-01T00:00:00Z"}
    scattered(cluster).pod("ahead", 1, phase="Pending", metadata=metadata)
    with EvictingServer(cluster).serving() as server:
        assert isinstance(server, EvictingServer)
        server.before = lambda _: server.pod("ahead")["spec"].update(nodeName="n1")
        outcome = Defrag(run, server, tmp_path)("--apply")
    assert (outcome.code, server.evicted) == (0, ["b", "c"])
    assert "note: default/ahead: it fits node n1 already" in outcome.err


def test_a_pod_has_to_wait_first(defrag: Defrag, server: EvictingServer) -> None:
    """A scheduler places most pods without anybody moving."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    server.pod("w")["metadata"]["creationTimestamp"] = moment
    assert "it has waited for less than 120 s" in defrag("--apply").err
    assert defrag("--waited", "0").out.endswith("fits node n1\n")


def test_a_pod_for_which_its_scheduler_preempts_has_nobody_evicted(
    defrag: Defrag, server: EvictingServer
) -> None:
    """kube-scheduler has nominated a node, and its victims are ending."""
    server.pod("w")["status"]["nominatedNodeName"] = "n2"
    server.pod("e")["metadata"]["deletionTimestamp"] = from_now(30)
    assert "its scheduler makes room for it on node n2 already" in defrag("--apply").err
    assert server.evicted == []


def test_a_pod_that_fits_once_another_is_deleted_has_nobody_evicted(
    defrag: Defrag, server: EvictingServer
) -> None:
    """A person deleted the pod, whose program takes its time to end."""
    server.pod("e")["metadata"]["deletionTimestamp"] = from_now(30)
    assert "it fits node n2 once the pods that are being deleted" in defrag("--apply").err
    assert server.evicted == []


def test_a_nomination_without_a_preemption_stops_no_eviction(
    defrag: Defrag, server: EvictingServer
) -> None:
    """Its victims are gone, and the pod does not fit; the evictions of the run are none of them."""
    server.pod("w")["status"]["nominatedNodeName"] = "n1"
    defrag("--apply")
    assert server.evicted == ["b", "c"]


@pytest.mark.parametrize("seconds", [365 * 86400, -3600], ids=["long grace period", "stuck"])
def test_a_deleted_pod_of_a_tenant_that_does_not_end_stops_no_eviction(
    run: Run, cluster: FakeCluster, tmp_path: Path, seconds: int
) -> None:
    """``w`` would fit without the pod of another namespace, which may be there for a year."""
    scattered(cluster).node("n3", gpus=[Gpu(15)])
    metadata = {"deletionTimestamp": from_now(seconds)}
    cluster.pod("kept", 15, node="n3", index=0, namespace="tenant", metadata=metadata)
    with EvictingServer(cluster).serving() as server:
        assert isinstance(server, EvictingServer)
        Defrag(run, server, tmp_path)("--apply")
    assert server.evicted == ["b", "c"]


def test_an_evicted_pod_with_a_long_grace_period_stops_no_later_run(
    defrag: Defrag, server: EvictingServer
) -> None:
    """A run waits for pods of an earlier one that end soon, not for as long as a tenant likes."""
    defrag("--apply")
    for name in "bc":
        server.pod(name)["metadata"]["deletionTimestamp"] = from_now(365 * 86400)
    outcome = defrag("--apply")
    assert "still being deleted" not in outcome.out
    assert "default/w: pods were evicted for it within the last hour" in outcome.err


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (True, "no scheduler that calls the extender has the name"),
        (False, "its scheduler is not gpushare-scheduler"),
    ],
    ids=["configuration", "flag"],
)
def test_a_pod_of_an_unknown_scheduler_takes_no_room_of_a_plan(
    run: Run, cluster: FakeCluster, known: bool, words: str
) -> None:
    """It waits for ever, ahead of all others, and is named.

    The CronJob may not read the configuration of the scheduler, and has its name as a flag.
    """
    metadata = {"creationTimestamp": "2025-12-01T00:00:00Z"}
    scattered(cluster).pod("lost", 15, phase="Pending", metadata=metadata)
    for pod in cluster.items:
        if pod["kind"] == "Pod":
            pod["spec"]["schedulerName"] = "gpushare-scheduler"
    cluster.items[-1]["spec"]["schedulerName"] = "gpushare-schedular"
    if known:
        configured(cluster)
    flags = () if known else ("--scheduler=gpushare-scheduler",)
    outcome = run("defrag", *flags, on=cluster)
    assert outcome.out.endswith("so that default/w fits node n1\n")
    assert f"default/lost: {words}" in outcome.err


@pytest.mark.parametrize("known", [True, False], ids=["configuration", "flag"])
def test_a_pod_of_a_scheduler_without_the_extender_stays(
    run: Run, cluster: FakeCluster, known: bool
) -> None:
    """Its replacement would be placed without regard to the plan; one steered by the webhook not.

    A pod of default-scheduler may be older than the webhook, which gives the next one ours.
    """
    flags = () if known else ("--scheduler=gpushare-scheduler",)
    for pod in scattered(cluster).items:
        if pod["kind"] == "Pod":
            pod["spec"]["schedulerName"] = "gpushare-scheduler"
    if known:
        configured(cluster)
    spec = next(pod for pod in cluster.items if pod["metadata"]["name"] == "b")["spec"]
    spec["schedulerName"] = "default-scheduler"
    assert run("defrag", *flags, on=cluster).out.endswith("so that default/w fits node n1\n")
    spec["schedulerName"] = "volcano"
    outcome = run("defrag", *flags, on=cluster)
    assert outcome.out == "nothing is evicted: no waiting pod would fit by it\n"


def test_with_the_clusters_own_scheduler_pods_of_another_one_stay(
    run: Run, cluster: FakeCluster
) -> None:
    """As of the CronJob in mode ``extender``."""
    for pod in scattered(cluster).items:
        if pod["kind"] == "Pod":
            pod["spec"]["schedulerName"] = "default-scheduler"
    flag = "--scheduler=default-scheduler"
    assert run("defrag", flag, on=cluster).out.endswith("so that default/w fits node n1\n")
    next(pod for pod in cluster.items if pod["metadata"]["name"] == "b")["spec"] |= {
        "schedulerName": "volcano"
    }
    outcome = run("defrag", flag, on=cluster)
    assert outcome.out == "nothing is evicted: no waiting pod would fit by it\n"


def test_unknown_allocations_end_the_run(defrag: Defrag, server: EvictingServer) -> None:
    """Without the right to list claims, GPUs could seem free that are not."""
    server.statuses["/apis/resource.k8s.io/v1/resourceclaims"] = 403
    outcome = defrag("--apply")
    assert outcome.code == 1
    assert "allocations are unknown" in outcome.err
    assert server.evicted == []


def test_a_document(run: Run, cluster: FakeCluster) -> None:
    """A snapshot gives the plan as JSON, and cannot be changed."""
    found = json.loads(run("defrag", "-o", "json", on=scattered(cluster)).out)
    assert found["kind"] == "EvictionPlan"
    assert found["pod"] == {"namespace": "default", "name": "w", "node": "n1", "gpus": [1]}
    assert [(e["name"], e["evicted"]) for e in found["evictions"]] == [("b", False), ("c", False)]
    assert "--apply needs a cluster" in run("defrag", "--apply", on=cluster).err
    assert run("defrag", "--apply", "--gpus", "1", on=cluster).code == 2
