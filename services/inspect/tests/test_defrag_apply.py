"""``gpushare defrag --apply``: evicts for a pod that then fits, and never more than that."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from evictingserver import EvictingServer
from invoking import Run, WhatIfOutcome

pytestmark = pytest.mark.slow

Object = dict[str, Any]


def owned(name: str, kind: str = "ReplicaSet") -> Object:
    """Metadata of a pod of a controller of its own."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": f"rs-{name}", "uid": f"uid-rs-{name}"}
    return {"ownerReferences": [{**owner, "controller": True}]}


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
    """Without --apply the pods are named, and nothing is requested but lists."""
    outcome = defrag()
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "POD        FROM                       TO",
        "default/b  8 GiB on GPU 1 of node n1  8 GiB on GPU 0 of node n2",
        "default/c  7 GiB on GPU 1 of node n1  7 GiB on GPU 1 of node n2",
        "dry run: --apply evicts 2 pods so that default/w fits node n1",
    ]
    assert (server.evicted, server.tried, server.events, server.lease) == ([], [], [], None)


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
    assert "stopped: a PodDisruptionBudget keeps default/c" in outcome.out


def test_a_budget_that_two_pods_share_stops_between_them(
    defrag: Defrag, server: EvictingServer
) -> None:
    """Both dry runs pass, the second eviction is refused, and it stays at one."""
    server.before = lambda name: server.refused.update({"c": 429} if name == "b" else {})
    outcome = defrag("--apply")
    assert server.evicted == ["b"]
    assert "evicted 1 of 2 pods" in outcome.out
    assert "PodDisruptionBudget" in outcome.out


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
        ({}, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]}),
    ],
    ids=["no controller", "DaemonSet", "Job", "gang", "volume"],
)
def test_pods_that_would_lose_their_work_stay(
    defrag: Defrag, server: EvictingServer, metadata: Object, spec: Object
) -> None:
    """Neither pods without a controller nor members of gangs are evicted."""
    server.pod("c")["metadata"] |= metadata
    server.pod("c")["spec"] |= spec
    assert "nothing is evicted" in defrag("--apply").out
    assert server.evicted == []


def test_a_pod_has_to_wait_first(defrag: Defrag, server: EvictingServer) -> None:
    """A scheduler places most pods without anybody moving."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    server.pod("w")["metadata"]["creationTimestamp"] = moment
    assert "it has waited for less than 120 s" in defrag("--apply").err
    assert defrag("--waited", "0").out.endswith("fits node n1\n")


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
