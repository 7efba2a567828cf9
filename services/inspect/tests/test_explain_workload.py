"""``gpushare explain deploy/NAME``: the pods of a workload in groups by reason."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run

OWN_PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"


def owned(kind: str, name: str, **labels: str) -> dict[str, Any]:
    """Metadata of a pod with this controller."""
    owner = {"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {"ownerReferences": [owner], "labels": labels}


def fill(cluster: FakeCluster) -> FakeCluster:
    """A Deployment of four pods: two are placed, one is too large, one waits for another GPU."""
    hashed = {"pod-template-hash": "5d4f"}
    cluster.node("n", gpus=[Gpu(15)])
    for number in (1, 2):
        cluster.pod(
            f"web-{number}",
            7,
            node="n",
            index=0,
            metadata=owned("ReplicaSet", "web-5d4f", **hashed),
        )
    for name, units in (("web-3", 7), ("web-4", 40)):
        metadata = owned("ReplicaSet", "web-5d4f", **hashed)
        cluster.pod(name, units, phase="Pending", metadata=metadata)
    cluster.pod("other-1", 7, phase="Pending", metadata=owned("ReplicaSet", "web-x-5d4f", **hashed))
    return cluster


@pytest.mark.parametrize("words", [["deploy/web"], ["deployment", "web"], ["deployments.apps/web"]])
def test_pods_in_groups(run: Run, cluster: FakeCluster, words: list[str]) -> None:
    """Pods that wait for one reason are one group, before those with GPUs."""
    outcome = run("explain", *words, "-o", "json", on=fill(cluster))
    document = json.loads(outcome.out)
    found = [(group["state"], group["pods"]) for group in document["groups"]]
    assert found == [
        ("Waiting", ["web-4"]),
        ("Waiting", ["web-3"]),
        ("Placed", ["web-1", "web-2"]),
    ]
    assert document["groups"][0]["reason"] == "1 node: largest GPU 15 GiB, requested 40"


def test_the_text(run: Run, cluster: FakeCluster) -> None:
    """A head with counts, and for each group its pods, its reason and what would help."""
    out = run("explain", "deploy/web", on=fill(cluster)).out
    assert out.startswith("Workload:  Deployment default/web\nPods:      4 with GPU requests, of")
    assert "2 pods placed\n  Pods:      web-1, web-2\n" in out
    assert "  Reason:    1 node: largest GPU 15 GiB, requested 40\n  What would help:\n" in out


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        ("sts/it", ("StatefulSet", "it")),
        ("job/it", ("Job", "it")),
        ("rs/it", ("ReplicaSet", "it")),
        ("ds/it", ("DaemonSet", "it")),
        ("cronjob/it", ("Job", "it-29000000")),
    ],
)
def test_kinds(run: Run, cluster: FakeCluster, words: str, owner: tuple[str, str]) -> None:
    """Each kind finds its pods by their controller."""
    cluster.node("n", gpus=[Gpu(15)]).pod("p", 40, phase="Pending", metadata=owned(*owner))
    cluster.pod("q", 40, phase="Pending", metadata=owned(owner[0], "another"))
    assert run("explain", words, "-o", "name", on=cluster).out == "pod/p\n"


def test_a_pod_with_a_slash(run: Run, cluster: FakeCluster) -> None:
    """``pod/NAME`` is ``pod NAME``, as for kubectl."""
    fill(cluster)
    assert (
        run("explain", "pod/web-4", on=cluster).out
        == run("explain", "pod", "web-4", on=cluster).out
    )


def test_no_pod_of_it(run: Run, cluster: FakeCluster) -> None:
    """A name without pods is an error that states where to look."""
    outcome = run("explain", "deploy/none", on=fill(cluster))
    assert (outcome.code, outcome.out) == (1, "")
    assert 'no pod of deployment "none" found in namespace "default"' in outcome.err


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """An API server that lets only the pods and events of one namespace be read."""
    pods = fill(cluster).items[1:]
    server = FakeApiServer({OWN_PODS: pods, EVENTS: []})
    server.statuses |= {"/api/v1/nodes": 403, "/api/v1/pods": 403}
    with server.serving() as serving:
        yield serving


def test_pods_that_could_not_be_created(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """Where a quota keeps the controller from creating pods, its last event is quoted."""
    about = {"kind": "ReplicaSet", "namespace": "default", "name": "none-5d4f"}
    event = {"involvedObject": about, "reason": "FailedCreate", "message": "exceeded quota: gpus"}
    server.lists[EVENTS] = [event]
    outcome = run("explain", "deploy/none", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    assert outcome.code == 0
    assert "Controller:  could not create a pod: exceeded quota: gpus\n" in outcome.out


def test_the_rights_of_a_namespace_are_enough(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """Placed pods are known from their annotations; the missing rights are reported."""
    outcome = run("explain", "deploy/web", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    assert outcome.code == 0
    assert "2 pods placed" in outcome.out
    assert outcome.err.count("gpushare-viewer") == 2


def test_one_pod_with_the_rights_of_a_namespace(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """``explain pod`` answers with the scheduler's words, as a table and as a document."""
    flag = f"--kubeconfig={server.kubeconfig(tmp_path)}"
    out = run("explain", "pod", "web-3", flag).out
    assert "State:      pending: not enough could be read to decide whether it fits" in out
    assert json.loads(run("explain", "pod", "web-1", "-o", "json", flag).out)["state"] == "Placed"
