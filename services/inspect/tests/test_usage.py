"""``gpushare usage``: allocated, limit, in use and pending, with all rights and with few."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakeprometheus
import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.sources.prometheus import POD_USED_BYTES, USED_BYTES

pytestmark = pytest.mark.slow

GIB = 1 << 30
QUOTAS = "/api/v1/resourcequotas"
OWN = "/api/v1/namespaces/default"


def items(out: str) -> dict[str, dict[str, Any]]:
    """The groups of a document by name."""
    return {item["name"]: item for item in json.loads(out)["items"]}


def quota(namespace: str, units: str) -> dict[str, Any]:
    """A ResourceQuota on GPU memory."""
    hard = {"requests.aliyun.com/gpu-mem": units, "pods": "9"}
    metadata = {"name": f"q{units}", "namespace": namespace}
    return {"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}


@pytest.fixture
def teams(cluster: FakeCluster) -> FakeCluster:
    """Two namespaces and two teams on a node of two GPUs; one pod waits, one has ended."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15, "NVIDIA L4")], resources=have)
    red, blue = ({"labels": {"team": team}} for team in ("red", "blue"))
    cluster.pod("a", 4, node="n", index=0, metadata=red)
    cluster.pod("b", 6, node="n", index=0, metadata=blue)
    cluster.pod("c", 40, phase="Pending", metadata=red)
    cluster.pod("d", 5, node="n", index=0, phase="Succeeded", metadata=red)
    return cluster.pod("e", 3, node="n", index=1, namespace="other")


def test_namespaces(run: Run, teams: FakeCluster) -> None:
    """Allocated, pending and the lowest quota of each; one with a quota alone is shown."""
    for each in (quota("default", "20"), quota("default", "12"), quota("idle", "8")):
        teams.add(each)
    found = items(run("usage", "-A", "-o", "json", on=teams).out)
    figures = {n: (g["pods"], g["allocated"], g["pending"], g["limit"]) for n, g in found.items()}
    assert figures == {"default": (2, 10, 40, 12), "idle": (0, 0, 0, 8), "other": (1, 3, 0, None)}


def test_the_own_namespace_is_the_default(run: Run, teams: FakeCluster) -> None:
    """Without -A only the namespace of the context is shown."""
    assert set(items(run("usage", "-o", "json", on=teams).out)) == {"default"}


def test_quotas_of_other_namespaces_are_not_shown(run: Run, teams: FakeCluster) -> None:
    """A snapshot has the quotas of all namespaces; -n asks for one, and its limit is shown."""
    for each in (quota("default", "12"), quota("other", "9"), quota("idle", "8")):
        teams.add(each)
    for name, limit in (("default", 12), ("idle", 8)):
        found = items(run("usage", "-n", name, "-o", "json", on=teams).out)
        assert {group: item["limit"] for group, item in found.items()} == {name: limit}
    assert items(run("usage", "-n", "empty", "-o", "json", on=teams).out) == {}


def test_labels(run: Run, teams: FakeCluster) -> None:
    """Groups by the value of a label; pods without it are one group."""
    found = items(run("usage", "-A", "--by", "label:team", "-o", "json", on=teams).out)
    assert {name: group["allocated"] for name, group in found.items()} == {
        "<none>": 3,
        "blue": 6,
        "red": 4,
    }


@pytest.mark.parametrize(
    ("by", "figures"),
    [("node", {"n": (13, 30, 2)}), ("model", {"NVIDIA L4": (3, 15, 1), "Tesla T4": (10, 15, 1)})],
)
def test_gpus(run: Run, teams: FakeCluster, by: str, figures: dict[str, Any]) -> None:
    """Allocated and total memory, and the number of GPUs."""
    found = items(run("usage", "--by", by, "-o", "json", on=teams).out)
    assert {n: (g["allocated"], g["total"], g["gpus"]) for n, g in found.items()} == figures


def test_memory_in_use(run: Run, teams: FakeCluster) -> None:
    """Prometheus reports it for pods and for GPUs; a missing figure is a dash."""
    answers = {
        POD_USED_BYTES: {"default/a": str(2 * GIB), "default/b": str(GIB)},
        USED_BYTES: {"GPU-n-0": str(3 * GIB)},
    }
    with fakeprometheus.serving(answers) as url:
        pods = items(run("usage", "-A", "-o", "json", "--prometheus", url, on=teams).out)
        models = run("usage", "--by", "model", "--prometheus", url, on=teams).out
    assert [pods[name]["usedBytes"] for name in ("default", "other")] == [3 * GIB, None]
    assert [line.split()[-1] for line in models.splitlines()] == ["USED(GiB)", "-", "3.0"]


@pytest.mark.parametrize("used", [2.0, 0.0])
def test_a_sum_without_the_unknown_is_a_lower_bound(
    run: Run, teams: FakeCluster, used: float
) -> None:
    """Where memory in use of some pods or GPUs is unknown, the figure has the sign for that."""
    answers = {
        POD_USED_BYTES: {"default/a": str(used * GIB)},
        USED_BYTES: {"GPU-n-0": str(used * GIB)},
    }
    with fakeprometheus.serving(answers) as url:
        flags = ("--prometheus", url)
        pods = run("usage", "-n", "default", *flags, on=teams).out
        nodes = run("usage", "--by", "node", *flags, on=teams).out
        found = items(run("usage", "-A", "-o", "json", *flags, on=teams).out)
    assert f">={used:.1f}" in pods.splitlines()[1].split()
    assert nodes.splitlines()[1].split()[-1] == f">={used:.1f}"
    assert found["default"]["usedUnknown"] >= 1
    assert found["other"]["usedBytes"] is None
    assert "usedUnknown" not in found["other"]


def test_order(run: Run, teams: FakeCluster) -> None:
    """--sort-by puts the largest amount first."""
    line = ("usage", "-A", "--by", "label:team", "-o", "name")
    assert run(*line, "--sort-by", "allocated", on=teams).out.split() == [
        "team/blue",
        "team/red",
        "team/<none>",
    ]
    assert run(*line, "--sort-by", "pending", on=teams).out.startswith("team/red\n")


@pytest.mark.parametrize("by", ["team", "label:", "Namespace"])
def test_unknown_groups(run: Run, teams: FakeCluster, by: str) -> None:
    """What cannot be a group is a usage error."""
    assert run("usage", "--by", by, on=teams).code == 2


@pytest.fixture
def server(teams: FakeCluster) -> Iterator[FakeApiServer]:
    """An API server that lets the pods and quotas of one namespace be read."""
    pods = [item for item in teams.items[1:] if item["metadata"]["namespace"] == "default"]
    lists = {f"{OWN}/pods": pods, f"{OWN}/resourcequotas": [quota("default", "12")]}
    server = FakeApiServer(lists)
    server.statuses |= {"/api/v1/nodes": 403, "/api/v1/pods": 403}
    with server.serving() as serving:
        yield serving


def test_the_rights_of_a_namespace_are_enough(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """What the pods request is counted, the quota is shown, and what is missing is reported."""
    outcome = run("usage", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    head, line = outcome.out.splitlines()
    assert head.split()[:3] == ["NAMESPACE", "PODS", "ALLOCATED(units)"]
    assert line.split() == ["default", "2", "10", "0", "12", "1", "40", "0"]
    assert outcome.err.startswith("note: nodes cannot be read, so amounts are in the units")
    assert outcome.err.count("gpushare-viewer") == 1


def test_quotas_may_be_forbidden(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """The rest is shown, with a note."""
    server.statuses[f"{OWN}/resourcequotas"] = 403
    flag = f"--kubeconfig={server.kubeconfig(tmp_path)}"
    outcome = run("usage", flag)
    assert outcome.code == 0
    assert "limits are not shown" in outcome.err
    assert "limits are not shown" not in run("usage", "--by", "label:team", flag).err


def test_nodes_need_their_rights(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """Groups of nodes cannot be shown in part: the command fails and names the right."""
    outcome = run("usage", "--by", "node", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    assert (outcome.code, outcome.out) == (1, "")
    assert "a right is missing: GET /api/v1/pods: 403" in outcome.err
    del server.statuses["/api/v1/pods"]
    server.lists["/api/v1/pods"] = []
    outcome = run("usage", "--by", "node", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    assert (outcome.code, outcome.out) == (1, "")
    assert (
        "error: --by node needs the nodes, which cannot be read: GET /api/v1/nodes" in outcome.err
    )


def test_a_namespace_without_pods_is_named(run: Run, teams: FakeCluster) -> None:
    """What was read is stated, and how to read the rest: the cluster has pods and nodes."""
    outcome = run("usage", "-n", "empty", on=teams)
    said = "no pod of namespace empty requests GPUs; -A reads all namespaces\n"
    assert (outcome.code, outcome.out, outcome.err) == (0, "", said)


def test_no_pod_of_the_cluster_requests_gpus(run: Run, cluster: FakeCluster) -> None:
    """Nodes with GPUs are there, and another command shows them."""
    outcome = run("usage", "-A", on=cluster.node("n", gpus=[Gpu(15)]).pod("p", node="n"))
    said = "no pod of any namespace requests GPUs; --by node shows the nodes\n"
    assert (outcome.out, outcome.err) == ("", said)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-A"], "no pod of any namespace requests GPUs, and no node has any"),
        (["-n", "empty"], "no pod of namespace empty requests GPUs, and no node has any"),
        (["--by", "node"], "no node has GPUs"),
        (["--by", "model"], "no node has GPUs"),
    ],
)
def test_no_node_of_the_cluster_has_gpus(
    run: Run, cluster: FakeCluster, flags: list[str], said: str
) -> None:
    """The next step is the same for all: what keeps the nodes from offering their GPUs."""
    cluster.node("plain", resources={"cpu": "8"}).pod("p", node="plain")
    assert run("usage", *flags, on=cluster).err == f"{said} (see 'gpushare doctor')\n"


def test_nothing_is_said_of_nodes_that_cannot_be_read(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """With the rights of one namespace only its pods are known."""
    for path in (f"{OWN}/pods", f"{OWN}/resourcequotas"):
        server.lists[path] = []
    outcome = run("usage", f"--kubeconfig={server.kubeconfig(tmp_path)}")
    first, *_ = outcome.err.splitlines()
    assert first == "no pod of namespace default requests GPUs; -A reads all namespaces"


def test_nodes_are_selected_by_their_labels(run: Run, cluster: FakeCluster) -> None:
    """Groups of nodes and models count the nodes that match; groups of pods count all."""
    cluster.node("a", gpus=[Gpu(15)], labels={"zone": "a"}).node("b", gpus=[Gpu(15)])
    found = items(run("usage", "--by", "node", "-l", "zone=a", "-o", "json", on=cluster).out)
    assert set(found) == {"a"}
    outcome = run("usage", "-l", "zone=a", on=cluster)
    assert outcome.code == 2
    assert "--selector selects nodes: it needs --by node or --by model" in outcome.err
