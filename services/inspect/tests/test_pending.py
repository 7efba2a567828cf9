"""``gpushare pending``: what waits, why and since when, with all rights and with few."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.terminal import ages

pytestmark = pytest.mark.slow

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
OWN_PODS = "/api/v1/namespaces/team/pods"
CONDITION = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: full"}
MESSAGE = {"conditions": [CONDITION]}
NOW = datetime(2026, 1, 2, 5, 4, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def at_five(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is two hours after the pods were created."""
    monkeypatch.setattr(ages, "now", lambda: NOW)


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """A full node, and a pod of each of two namespaces that waits."""
    cluster.node("n", gpus=[Gpu(15)]).pod("full", 15, node="n", index=0, namespace="other")
    cluster.pod("mine", 4, phase="Pending", namespace="team", status=MESSAGE)
    cluster.pod("theirs", 4, phase="Pending", namespace="other")
    node, *pods = cluster.items
    own = [pod for pod in pods if pod["metadata"]["namespace"] == "team"]
    with FakeApiServer({NODES: [node], PODS: pods, OWN_PODS: own}).serving() as serving:
        yield serving


def context_in(server: FakeApiServer, folder: Path, namespace: str) -> str:
    """The flag with a kubeconfig whose context names a namespace."""
    path = server.kubeconfig(folder)
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(config))
    return f"--kubeconfig={path}"


def rows(out: str) -> list[list[str]]:
    """The lines of a table below its head, in words."""
    return [line.split() for line in out.splitlines()[1:]]


def test_the_namespace_of_the_context_is_meant(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """Without -n the pods of the context's namespace are listed, with age, request and reason."""
    outcome = run("pending", context_in(server, tmp_path, "team"))
    assert outcome.code == 0
    line = " ".join(rows(outcome.out)[0])
    reason = "1 node: largest free block 0 GiB, requested 4"
    assert line == f"team mine 120m 4 GiB of memory on one GPU {reason}"
    assert len(rows(outcome.out)) == 1


@pytest.mark.parametrize(
    ("flags", "names"), [(["-n", "other"], {"theirs"}), (["-A"], {"mine", "theirs"})]
)
def test_other_namespaces(
    run: Run, server: FakeApiServer, tmp_path: Path, flags: list[str], names: set[str]
) -> None:
    """-n names one, -A means all."""
    outcome = run("pending", context_in(server, tmp_path, "team"), *flags)
    assert {row[1] for row in rows(outcome.out)} == names


def test_the_rights_of_a_namespace_are_enough(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """The scheduler's words are the reason; what cannot be read is reported, with the role."""
    server.statuses |= {NODES: 403, PODS: 403}
    outcome = run("pending", context_in(server, tmp_path, "team"))
    assert outcome.code == 0
    assert outcome.out.endswith("one GPU  0/1 nodes are available: full\n")
    assert outcome.err.count("ClusterRole gpushare-viewer of the chart gives the right") == 2


def test_documents_say_what_is_missing(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """A program sees the gaps in the document, not on stderr."""
    server.statuses |= {NODES: 403}
    outcome = run("pending", context_in(server, tmp_path, "team"), "-o", "json")
    document = json.loads(outcome.out)
    assert [item["reason"] for item in document["items"]] == [CONDITION["message"]]
    assert (len(document["gaps"]), outcome.err) == (1, "")


@pytest.mark.parametrize(("path", "status"), [(OWN_PODS, 403), (NODES, 401), (PODS, 500)])
def test_without_pods_there_is_no_answer(
    run: Run, server: FakeApiServer, tmp_path: Path, path: str, status: int
) -> None:
    """No pods, an unknown user and a broken API server are errors, not an empty list."""
    server.statuses |= {PODS: 403, path: status}
    outcome = run("pending", context_in(server, tmp_path, "team"))
    assert (outcome.code, outcome.out) == (1, "")
    assert str(status) in outcome.err


def test_nothing_waits(run: Run, cluster: FakeCluster) -> None:
    """An empty list is reported, with the namespace that was looked at."""
    cluster.node("n", total=15).pod("p", 1, node="n", index=0).pod("idle", phase="Pending")
    outcome = run("pending", on=cluster)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "no pod waits for GPUs in namespace default; -A reads all namespaces\n"


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"units": 40}, "1 node: largest GPU 15 GiB, requested 40"),
        ({"units": 4, "spec": {"schedulingGates": [{"name": "g"}]}}, "its scheduling gate g keeps"),
        ({"units": 4}, "no scheduler has recorded an attempt"),
        ({"units": 4, "status": MESSAGE}, "the scheduler reported: 0/1 nodes are available: full"),
        ({"units": 4, "node": "n"}, "bound to n, but on no known GPU"),
        ({"units": 4, "spec": {"nodeSelector": {"a": "b"}}}, "1 node: nodeSelector a=b"),
        (
            {"metadata": {"labels": {"gpu-topology": "g", "gpu-topology-replica": "2"}}},
            "gang g waits for 1 of its 2 pods",
        ),
    ],
)
def test_reasons(run: Run, cluster: FakeCluster, pod: dict[str, object], reason: str) -> None:
    """Each situation is one line that states what is in the way."""
    cluster.node("n", gpus=[Gpu(15)])
    fields = {"units": 4, "phase": "Pending", **pod}
    cluster.pod("p", **fields)  # type: ignore[arg-type]
    items = json.loads(run("pending", "-o", "json", on=cluster).out)["items"]
    assert reason in items[0]["reason"]


def test_order(run: Run, cluster: FakeCluster) -> None:
    """Oldest first, unless --sort-by specifies otherwise."""
    young = {"creationTimestamp": "2026-01-02T04:04:05Z"}
    cluster.node("n", gpus=[Gpu(15)]).pod("a", 20, phase="Pending", metadata=young)
    cluster.pod("b", 20, phase="Pending")
    assert [row[1:3] for row in rows(run("pending", on=cluster).out)] == [
        ["b", "120m"],
        ["a", "60m"],
    ]
    assert [row[1] for row in rows(run("pending", "--sort-by=name", on=cluster).out)] == ["a", "b"]


def test_messages_cannot_control_the_terminal(run: Run, cluster: FakeCluster) -> None:
    """Escape sequences and line breaks in what a scheduler recorded are not printed."""
    evil = {"type": "PodScheduled", "status": "False", "message": "a\x1b[2J\nb"}
    cluster.node("n", gpus=[Gpu(15)])
    cluster.pod("p", 4, phase="Pending", status={"conditions": [evil]})
    out = run("pending", on=cluster).out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


def test_namespace_and_all_namespaces_exclude_each_other(run: Run, cluster: FakeCluster) -> None:
    """Both at once are a usage error."""
    assert run("pending", "-A", "-n", "x", on=cluster).code == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (179, "179s"), (180, "3m"), (10_799, "179m"), (10_800, "3h"), (172_800, "2d")],
)
def test_ages(seconds: int, text: str) -> None:
    """One unit is shown, as kubectl does."""
    then = datetime.fromtimestamp(NOW.timestamp() - seconds, UTC)
    assert ages.age(then.isoformat(), NOW) == text


@pytest.mark.parametrize("moment", ["", "soon", "2026-01-02T05:04:05"])
def test_no_age(moment: str) -> None:
    """What is no moment in time has none."""
    assert ages.age(moment, NOW) == "-"
