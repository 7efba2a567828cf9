"""``gpushare idle``: pods that hold GPU memory and use none, as the device plugins report it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from claimobjects import allocated, claim, device, resource_slice
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run
from test_memory_in_use import path, plugin

from gpuinspect.cluster.collect import RESOURCE_API
from gpuinspect.terminal import ages

pytestmark = pytest.mark.slow

FORMS = Path(__file__).parent / "golden" / "forms"
GIB = 1 << 30
NOW = 1_767_571_200.0
CREATED = 1_767_323_045.0
"""Of every pod of the cluster."""
OWNER = {"kind": "ReplicaSet", "name": "web-7f8d", "controller": True}


def row(
    name: str, *, idle_hours: float = 0.0, no_work_hours: float = 0.0, used: int = 0
) -> dict[str, Any]:
    """A pod on a GPU; 0 hours: it is in use."""
    since, no_work = (NOW - 3600 * each if each else 0 for each in (idle_hours, no_work_hours))
    named = {"namespace": "default", "name": name, "containers": ["main"]}
    return {**named, "usedBytes": used, "idleSince": since, "noWorkSince": no_work}


def reply(node: str, *gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """What the plugin of a node reports, GPU by GPU."""
    shown = [
        {"index": index, "uuid": f"GPU-{node}-{index}", "usedBytes": 0, "unattributedBytes": 0}
        | {"pods": rows}
        for index, rows in enumerate(gpus)
    ]
    known = {"apiVersion": "gpushare/v1", "kind": "NodeUsage", "node": node, "measuredAt": NOW}
    return {**known, "gpus": shown}


class Idle:
    """A cluster whose pods a test draws; ``show`` runs the command."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.cluster = FakeCluster()
        self.cluster.node("n1", gpus=[Gpu(16), Gpu(16)])
        self.replies: dict[str, Any] = {}
        self.lists: dict[str, list[dict[str, Any]]] = {}

    def server(self) -> FakeApiServer:
        """Of the cluster with its plugins."""
        nodes = [each for each in self.cluster.items if each["kind"] == "Node"]
        pods = [each for each in self.cluster.items if each["kind"] == "Pod"]
        lists = {"/api/v1/nodes": nodes, "/api/v1/pods": [*pods, plugin("n1")], **self.lists}
        made = FakeApiServer(lists, page=100)
        made.objects.update({path(node): each for node, each in self.replies.items()})
        return made

    def show(self, *flags: str) -> Any:
        """The outcome of the command."""
        server = self.server()
        with server.serving():
            config = str(server.kubeconfig(self.folder))
            return self.run("idle", "--kubeconfig", config, *flags)

    def items(self, *flags: str) -> list[dict[str, Any]]:
        """Of the document."""
        found: list[dict[str, Any]] = json.loads(self.show("-o", "json", *flags).out)["items"]
        return found


@pytest.fixture
def idle(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Idle:
    """At a time that is known."""
    monkeypatch.setattr(ages, "now", lambda: datetime.fromtimestamp(NOW, UTC))
    return Idle(run, tmp_path)


def test_idle_shares_are_listed_longest_first_with_what_they_held(idle: Idle) -> None:
    """In use, idle for too short a time, and idle for long."""
    for name in ("busy", "short", "long", "web"):
        more = {"ownerReferences": [OWNER], "labels": {"pod-template-hash": "7f8d"}}
        metadata = more if name == "web" else {}
        idle.cluster.pod(name, 4, node="n1", index=0, metadata=metadata)
    rows = [row("busy", used=GIB), row("short", idle_hours=0.5), row("long", idle_hours=30)]
    idle.replies["n1"] = reply("n1", [*rows, row("web", idle_hours=2)], [])
    outcome = idle.show("-o", "wide", "--price", "2")
    lines = [line.split() for line in outcome.out.splitlines()]
    heads = "NAMESPACE POD WORKLOAD MEMORY(GiB) USED(GiB) IDLE AGE NODE GPU-HOURS COST"
    assert lines[0] == heads.split()
    assert [line[1:6] + line[7:] for line in lines[1:]] == [
        ["long", "pod/long", "4", "0.0", "30h", "n1", "7.5", "15.00"],
        ["web", "deployment/web", "4", "0.0", "120m", "n1", "0.5", "1.00"],
    ]
    assert idle.show("-o", "name").out == "pod/long\npod/web\n"
    assert [each["name"] for each in idle.items("--for", "1d")] == ["long"]


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name"])
def test_every_form_is_its_golden_file(idle: Idle, form: str) -> None:
    """To the byte; UPDATE_GOLDEN=1 writes the files anew."""
    idle.cluster.pod("notebook", 4, node="n1", index=0).pod("trainer", 8, node="n1", index=1)
    idle.cluster.pod("server", 8, node="n1", index=0)
    server = row("server", no_work_hours=5, used=3 * GIB)
    rows = [row("notebook", idle_hours=30), server], [row("trainer", idle_hours=2)]
    idle.replies["n1"] = reply("n1", *rows)
    printed = idle.show("-o", form, "--price", "2.5").out
    path = FORMS / f"idle.{form}"
    if "UPDATE_GOLDEN" in os.environ:
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("second", "listed"),
    [({"used": GIB}, []), ({"idle_hours": 2}, [("p", 8, 7200)])],
    ids=["used", "idle"],
)
def test_a_pod_with_two_claims_is_one_pod(
    idle: Idle, second: dict[str, Any], listed: list[tuple[str, int, int]]
) -> None:
    """It is idle once the GPUs of both are, and holds both."""
    claims = [{"name": name, "resourceClaimName": name} for name in ("c", "d")]
    idle.cluster.items = []
    idle.cluster.node("n1", resources={}).pod("p", node="n1", spec={"resourceClaims": claims})
    idle.lists = {
        f"{RESOURCE_API}/resourceslices": [resource_slice("n1", [device(0, 16), device(1, 16)])],
        f"{RESOURCE_API}/resourceclaims": [
            claim(name, allocated("n1", index, "4Gi"), pods=["p"])
            for index, name in enumerate(("c", "d"))
        ],
    }
    idle.replies["n1"] = reply("n1", [row("p", idle_hours=30)], [row("p", **second)])
    found = [(each["name"], each["units"], each["idleSeconds"]) for each in idle.items()]
    assert found == listed


def test_only_shares_of_selected_nodes_are_listed(idle: Idle) -> None:
    """By their labels, as for the tables of nodes."""
    idle.cluster.pod("notebook", 4, node="n1", index=0)
    idle.replies["n1"] = reply("n1", [row("notebook", idle_hours=30)], [])
    assert idle.items("-l", "pool=none") == []
    assert len(idle.items("-l", "pool!=none")) == 1


def test_only_shares_of_the_namespace_are_listed(idle: Idle) -> None:
    """``-A`` lists those of all."""
    idle.cluster.pod("mine", 4, node="n1", index=0)
    idle.cluster.pod("theirs", 4, node="n1", index=0, namespace="other")
    theirs = row("theirs", idle_hours=20) | {"namespace": "other"}
    idle.replies["n1"] = reply("n1", [row("mine", idle_hours=30), theirs], [])
    assert [each["name"] for each in idle.items()] == ["mine"]
    assert [each["name"] for each in idle.items("-n", "other")] == ["theirs"]
    assert [each["name"] for each in idle.items("-A")] == ["mine", "theirs"]


def test_a_pod_with_memory_in_use_that_runs_no_work_is_listed_with_it(idle: Idle) -> None:
    """From the earlier of both times on; that of one that works is not listed."""
    for name in ("working", "loaded", "both"):
        idle.cluster.pod(name, 4, node="n1", index=0)
    loaded = row("loaded", no_work_hours=5, used=3 * GIB)
    both = row("both", idle_hours=2, no_work_hours=9)
    idle.replies["n1"] = reply("n1", [row("working", used=GIB), loaded, both], [])
    found = [(each["name"], each["usedBytes"], each["idleSeconds"]) for each in idle.items()]
    assert found == [("both", 0, 9 * 3600), ("loaded", 3 * GIB, 5 * 3600)]


def test_a_pod_that_works_on_one_of_its_gpus_is_not_idle(idle: Idle) -> None:
    """The time is that of the last of its GPUs."""
    both = {"scheduler.framework.gpushare.allocation": '{"0":{"0":4,"1":4}}'}
    idle.cluster.pod("two", 8, node="n1", annotations=both)
    first = row("two", no_work_hours=9, used=GIB)
    idle.replies["n1"] = reply("n1", [first], [row("two", used=GIB)])
    assert idle.items() == []
    idle.replies["n1"] = reply("n1", [first], [row("two", no_work_hours=4, used=GIB)])
    assert [(each["usedBytes"], each["idleSeconds"]) for each in idle.items()] == [
        (2 * GIB, 4 * 3600)
    ]


def test_a_share_that_is_idle_for_exactly_the_time_is_listed(idle: Idle) -> None:
    """The time is the least."""
    idle.cluster.pod("notebook", 4, node="n1", index=0)
    idle.replies["n1"] = reply("n1", [row("notebook", idle_hours=1)], [])
    assert len(idle.items("--for", "1h")) == 1


@pytest.mark.parametrize("shares", [{}, {"aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}])
def test_an_idle_exclusive_gpu_counts_with_all_of_it(idle: Idle, shares: dict[str, str]) -> None:
    """All of its memory, and an hour of it for each hour; also on a node without shares."""
    resources = {"aliyun.com/gpu": "2", **shares}
    idle.cluster.items.clear()
    idle.cluster.node("n1", gpus=[Gpu(16), Gpu(16)], resources=resources)
    limits, notes = {"aliyun.com/gpu": "1"}, {"ALIYUN_COM_GPU_GROUP": "1"}
    idle.cluster.pod("whole", node="n1", limits=limits, annotations=notes)
    idle.replies["n1"] = reply("n1", [], [row("whole", idle_hours=3)])
    (found,) = idle.items()
    assert (found["units"], found["gpus"], found["gpuHours"]) == (16, 1, 3)


def test_a_pod_is_idle_when_all_its_gpus_are(idle: Idle) -> None:
    """And only for as long as the one that was used last."""
    both = {"scheduler.framework.gpushare.allocation": '{"0":{"0":4,"1":4}}'}
    idle.cluster.pod("two", 8, node="n1", annotations=both)
    idle.replies["n1"] = reply("n1", [row("two", idle_hours=9)], [row("two", used=GIB)])
    assert idle.items() == []
    idle.replies["n1"] = reply("n1", [row("two", idle_hours=9)], [row("two", idle_hours=3)])
    assert [each["idleSeconds"] for each in idle.items()] == [3 * 3600]


def test_pods_that_may_be_idle_are_left_out_and_counted(idle: Idle) -> None:
    """By their label; another value of it means nothing."""
    for name, value in (("kept", "true"), ("listed", "false")):
        labels = {"labels": {"gpushare/idle-allowed": value}}
        idle.cluster.pod(name, 4, node="n1", index=0, metadata=labels)
    rows = [row("kept", idle_hours=9), row("listed", idle_hours=9)]
    idle.replies["n1"] = reply("n1", rows, [])
    outcome = idle.show("-o", "json")
    document = json.loads(outcome.out)
    assert [each["name"] for each in document["items"]] == ["listed"]
    assert document["allowed"] == 1
    assert "1 pod with the label gpushare/idle-allowed=true left out" in document["gaps"]


def test_a_pod_without_figures_is_not_idle_but_unknown(idle: Idle) -> None:
    """Deleting it would be a mistake; a plugin that does not reply knows nothing."""
    idle.cluster.pod("dark", 4, node="n1", index=0)
    idle.replies["n1"] = reply("n1", [], [])
    document = json.loads(idle.show("-o", "json").out)
    assert (document["items"], document["unknown"]) == ([], 1)
    idle.replies = {}
    outcome = idle.show()
    assert outcome.out == ""
    assert "memory in use of node n1 is unknown" in outcome.err
    assert "it is not known whether 1 pod uses memory" in outcome.err


def test_a_pod_in_use_is_known(idle: Idle) -> None:
    """It is neither idle nor among the pods of which nothing is known."""
    idle.cluster.pod("busy", 4, node="n1", index=0)
    idle.replies["n1"] = reply("n1", [row("busy", used=GIB)], [])
    document = json.loads(idle.show("-o", "json").out)
    assert (document["items"], document["unknown"]) == ([], 0)


@pytest.mark.parametrize("hours", [{"idle_hours": 40}, {"no_work_hours": 40}])
@pytest.mark.parametrize("age", [301, 40 * 3600, -301])
def test_a_pod_with_an_old_measurement_is_unknown(
    idle: Idle, hours: dict[str, float], age: float
) -> None:
    """It may have used its GPU since; --evict has the same rule."""
    idle.cluster.pod("worker", 4, node="n1", index=0)
    idle.replies["n1"] = reply("n1", [row("worker", **hours)], []) | {"measuredAt": NOW - age}
    document = json.loads(idle.show("--for", "12h", "-o", "json").out)
    assert (document["items"], document["unknown"]) == ([], 1)
    assert idle.show("--for", "12h", "-o", "name").out == ""
    idle.replies["n1"]["measuredAt"] = NOW - 300
    assert [each["name"] for each in idle.items("--for", "12h")] == ["worker"]


def test_a_pod_that_is_younger_than_its_measurements_is_unknown(idle: Idle) -> None:
    """They are of an earlier pod of its name."""
    idle.cluster.pod("db-0", 4, node="n1", index=0)
    for late, unknown in ((-1, 1), (0, 0)):
        hours = (NOW - CREATED - late) / 3600
        idle.replies["n1"] = reply("n1", [row("db-0", idle_hours=hours)], [])
        document = json.loads(idle.show("-o", "json").out)
        assert (len(document["items"]), document["unknown"]) == (1 - unknown, unknown)


def test_no_idle_share_is_said_with_the_next_step(idle: Idle) -> None:
    """Which namespace was read, and that all can be."""
    idle.replies["n1"] = reply("n1", [], [])
    assert "no share was idle for 1h in namespace default; -A reads all namespaces" in (
        " ".join(idle.show().err.split())
    )


def test_a_snapshot_has_no_memory_in_use(run: Run, cluster: FakeCluster) -> None:
    """The command says so and shows nothing."""
    outcome = run("idle", on=cluster)
    assert outcome.code == 1
    assert "a snapshot does not have memory in use" in outcome.err


def test_a_wrong_time_is_refused(run: Run, cluster: FakeCluster) -> None:
    """With the form that is needed."""
    outcome = run("idle", "--for", "soon", on=cluster)
    assert outcome.code == 2
    assert "--for takes a number with h, d or w" in outcome.err
