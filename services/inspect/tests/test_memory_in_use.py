"""Memory in use from the device plugins, with the rights of the caller and within bounds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run

from gpucore.sizing.usage_documents import MOST_BYTES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries.memory_in_use import Figures, MemoryInUse, memory_in_use
from gpuinspect.web.feed import CACHE_SECONDS, Cached
from gpukube.blocking import BlockingClient
from gpukube.testing.plugin_pods import plugin_pod

pytestmark = pytest.mark.slow

GIB = 1 << 30
WRONG: list[Any] = [
    "no JSON",
    "[]",
    "null",
    "{",
    " " * (MOST_BYTES + 1),
    {"kind": "NodeUsage"},
    {"apiVersion": "gpushare/v2", "kind": "NodeUsage", "node": "n1", "measuredAt": 1, "gpus": []},
    {"apiVersion": "gpushare/v1", "kind": "NodeUsage", "node": "n1", "measuredAt": 1, "gpus": 7},
]
"""Replies that are no memory in use."""


def plugin(
    node: str, *, namespace: str = "gpushare", scheme: str = "HTTP", phase: str = "Running"
) -> dict[str, Any]:
    """A pod of the device plugin."""
    return plugin_pod(f"plugin-{node}", node, namespace=namespace, scheme=scheme, phase=phase)


def path(node: str, *, namespace: str = "gpushare", secure: str = "") -> str:
    """Where the API server serves the reply of a plugin."""
    return f"/api/v1/namespaces/{namespace}/pods/{secure}plugin-{node}%3A9395/proxy/usage"


def usage(node: str, used: int, *, uuid: str = "", **pods: int) -> dict[str, Any]:
    """The reply of a plugin with one GPU."""
    rows = [
        {"namespace": "default", "name": name, "containers": ["main"], "usedBytes": size}
        for name, size in pods.items()
    ]
    gpu = {"index": 0, "uuid": uuid or f"GPU-{node}-0", "usedBytes": used, "unattributedBytes": 0}
    return {
        "apiVersion": "gpushare/v1",
        "kind": "NodeUsage",
        "node": node,
        "measuredAt": 1.5,
        "gpus": [{**gpu, "pods": rows}],
    }


class Live(FakeApiServer):
    """Two nodes with a pod each, whose plugins reply."""

    def __init__(self) -> None:
        cluster = FakeCluster()
        for node in ("n1", "n2"):
            cluster.node(node, gpus=[Gpu(15)]).pod(f"pod-{node}", 6, node=node, index=0)
        of_kind = {
            kind: [o for o in cluster.items if o["kind"] == kind] for kind in ("Node", "Pod")
        }
        lists = {"/api/v1/nodes": of_kind["Node"], "/api/v1/pods": of_kind["Pod"]}
        super().__init__(lists, page=100)
        for node in ("n1", "n2"):
            self.lists["/api/v1/pods"].append(plugin(node))
            self.objects[path(node)] = usage(node, 3 * GIB, **{f"pod-{node}": 2 * GIB})

    def figures(self, folder: Path, *, seconds: float = 5.0) -> MemoryInUse:
        """What a caller reads."""
        objects = [*self.lists["/api/v1/nodes"], *self.lists["/api/v1/pods"]]
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        snapshot = decode(json.dumps(listed).encode())
        config = self.kubeconfig(folder)
        with BlockingClient.connect(config, user_agent="test", seconds=seconds) as kube:
            return memory_in_use(kube, snapshot)


@pytest.fixture
def live() -> Iterator[Live]:
    """It listens."""
    server = Live()
    with server.serving():
        yield server


def live_run(run: Run, live: Live, folder: Path, *words: str) -> Any:
    """A command on the live cluster."""
    return run(*words, "--kubeconfig", str(live.kubeconfig(folder)))


def test_the_plugins_report_gpus_and_pods(live: Live, tmp_path: Path) -> None:
    """Each for its own node."""
    found = live.figures(tmp_path)
    assert found.note == ""
    assert found.figures == Figures(
        pods={"default/pod-n1": 2 * GIB, "default/pod-n2": 2 * GIB},
        gpus={"GPU-n1-0": 3 * GIB, "GPU-n2-0": 3 * GIB},
    )


def test_a_pod_on_two_gpus_has_their_sum(live: Live, tmp_path: Path) -> None:
    """As its request is the sum."""
    document = live.objects[path("n1")]
    other = usage("n1", GIB, uuid="GPU-n1-1", **{"pod-n1": GIB})["gpus"]
    live.objects[path("n1")] = {**document, "gpus": [*document["gpus"], *other]}
    assert live.figures(tmp_path).known.pods["default/pod-n1"] == 3 * GIB


@pytest.mark.parametrize("reply", WRONG, ids=lambda reply: str(reply)[:40].strip() or "huge")
def test_a_reply_that_is_no_memory_in_use_is_left_out(
    live: Live, tmp_path: Path, reply: Any
) -> None:
    """The other nodes are shown, with a sentence on this one."""
    live.objects[path("n1")] = reply
    found = live.figures(tmp_path)
    assert list(found.known.gpus) == ["GPU-n2-0"]
    assert "memory in use of node n1 is unknown" in found.note


def test_a_plugin_reports_its_own_node_only(live: Live, tmp_path: Path) -> None:
    """Neither another node as a whole, nor a pod of one."""
    live.objects[path("n1")] = usage("n2", 9 * GIB)
    found = live.figures(tmp_path)
    assert found.known.gpus == {"GPU-n2-0": 3 * GIB}
    assert "reports another node" in found.note
    live.objects[path("n1")] = usage("n1", 9 * GIB, **{"pod-n2": 9 * GIB})
    assert live.figures(tmp_path).known.pods == {"default/pod-n2": 2 * GIB}


def test_a_gpu_that_two_nodes_report_counts_for_neither(live: Live, tmp_path: Path) -> None:
    """One of them is wrong."""
    live.objects[path("n1")] = usage("n1", 9 * GIB, uuid="GPU-n2-0")
    assert live.figures(tmp_path).known.gpus == {}


def test_a_tenants_pod_with_the_labels_of_the_plugin_is_not_read(
    live: Live, tmp_path: Path
) -> None:
    """The namespace of the DaemonSet is the one with the most of them."""
    live.lists["/api/v1/pods"].append(plugin("n1", namespace="a-tenant"))
    live.objects[path("n1", namespace="a-tenant")] = usage("n1", 9 * GIB)
    assert live.figures(tmp_path).known.gpus["GPU-n1-0"] == 3 * GIB
    assert not any("a-tenant" in request for request in live.requests)


def test_a_tenant_with_more_such_pods_than_there_are_plugins_is_not_read(
    live: Live, tmp_path: Path
) -> None:
    """They mount no directory of kubelet: who may do that controls the node anyway."""
    for index in range(9):
        fake = plugin_pod(f"fake-{index}", f"n{index}", namespace="a-tenant", kubelet="")
        live.lists["/api/v1/pods"].append(fake)
    assert live.figures(tmp_path).known.gpus["GPU-n1-0"] == 3 * GIB
    assert not any("a-tenant" in request for request in live.requests)


@pytest.mark.parametrize("root", ["/data/kubelet", "/var/lib/kubelet/"])
def test_a_plugin_is_read_wherever_kubelets_root_is(live: Live, tmp_path: Path, root: str) -> None:
    """It is a value of the chart."""
    live.lists["/api/v1/pods"] = [
        each for each in live.lists["/api/v1/pods"] if "plugin-n1" not in each["metadata"]["name"]
    ]
    live.lists["/api/v1/pods"].append(plugin_pod("plugin-n1", "n1", kubelet=root))
    assert live.figures(tmp_path).known.gpus["GPU-n1-0"] == 3 * GIB


def test_a_plugin_under_tls_is_read_under_tls(live: Live, tmp_path: Path) -> None:
    """The API server connects to it; the scheme is that of its readiness probe."""
    pods = [p for p in live.lists["/api/v1/pods"] if p["metadata"]["name"] != "plugin-n1"]
    live.lists["/api/v1/pods"] = [*pods, plugin("n1", scheme="HTTPS")]
    live.objects[path("n1", secure="https%3A")] = live.objects.pop(path("n1"))
    assert "GPU-n1-0" in live.figures(tmp_path).known.gpus


@pytest.mark.parametrize("phase", ["Pending", "Failed", "Succeeded"])
def test_only_running_plugins_are_read(live: Live, tmp_path: Path, phase: str) -> None:
    """The node of another one is named, with the reason."""
    pods = [p for p in live.lists["/api/v1/pods"] if p["metadata"]["name"] != "plugin-n1"]
    live.lists["/api/v1/pods"] = [*pods, plugin("n1", phase=phase)]
    found = live.figures(tmp_path)
    assert list(found.known.gpus) == ["GPU-n2-0"]
    assert found.note == (
        "memory in use of node n1 is unknown: the device plugin of n1 cannot be read: "
        "its plugin's pod is not running"
    )
    assert not any("plugin-n1" in request for request in live.requests)


def test_an_ended_pod_beside_a_running_plugin_is_not_named(live: Live, tmp_path: Path) -> None:
    """DaemonSets replace pods that ended."""
    live.lists["/api/v1/pods"].append(plugin_pod("an-old-one", "n1", phase="Failed"))
    assert live.figures(tmp_path).note == ""


def test_pods_that_do_not_run_name_no_namespace(live: Live, tmp_path: Path) -> None:
    """Whatever their number: they cost nothing."""
    for index in range(9):
        fake = plugin_pod(f"fake-{index}", f"n{index}", namespace="a-tenant", phase="Pending")
        live.lists["/api/v1/pods"].append(fake)
    found = live.figures(tmp_path)
    assert (len(found.known.gpus), found.note) == (2, "")


def test_a_missing_right_is_named_once(live: Live, tmp_path: Path, run: Run) -> None:
    """In one sentence below the table, which has dashes."""
    for node in ("n1", "n2"):
        del live.objects[path(node)]
        live.statuses[path(node)] = 403
    outcome = live_run(run, live, tmp_path, "top", "gpu")
    right = "the right to get pods/proxy in namespace gpushare is missing"
    assert " ".join(outcome.err.split()).count(right) == 1
    assert outcome.code == 0
    assert [line.split()[-3] for line in outcome.out.splitlines()[1:]] == ["-", "-"]


def test_top_gpu_shows_memory_in_use_without_prometheus(
    run: Run, live: Live, tmp_path: Path
) -> None:
    """In the table and in documents."""
    outcome = live_run(run, live, tmp_path, "top", "gpu")
    assert "3.0 GiB" in outcome.out
    assert outcome.err == ""
    document = json.loads(live_run(run, live, tmp_path, "top", "gpu", "-o", "json").out)
    assert [gpu["usedBytes"] for node in document["items"] for gpu in node["gpus"]] == [3 * GIB] * 2


def test_top_node_shows_memory_in_use_of_pods_without_prometheus(
    run: Run, live: Live, tmp_path: Path
) -> None:
    """Utilization stays unknown: the plugins do not measure it."""
    flags = ("top", "node", "n1", "--metric", "-o", "json")
    (node,) = json.loads(live_run(run, live, tmp_path, *flags).out)["items"]
    assert [pod["usedBytes"] for pod in node["pods"]] == [2 * GIB]
    assert node["gpus"][0]["utilizationPercent"] is None


@pytest.mark.parametrize(("by", "used"), [("namespace", "4.0"), ("node", "3.0"), ("model", "6.0")])
def test_usage_shows_memory_in_use_without_prometheus(
    run: Run, live: Live, tmp_path: Path, by: str, used: str
) -> None:
    """By pods for namespaces, by GPUs for nodes and models."""
    lines = live_run(run, live, tmp_path, "usage", "--by", by).out.splitlines()
    assert "USED(GiB)" in lines[0]
    assert used in lines[1].split()


def test_without_plugins_usage_has_no_column(run: Run, live: Live, tmp_path: Path) -> None:
    """Nothing could fill it."""
    pods = live.lists["/api/v1/pods"]
    live.lists["/api/v1/pods"] = [p for p in pods if p["metadata"]["namespace"] == "default"]
    outcome = live_run(run, live, tmp_path, "usage")
    assert "USED" not in outcome.out
    assert "memory in use" not in outcome.err


def test_the_dashboard_measures_every_ten_seconds() -> None:
    """It reads the cluster more often."""
    now, calls = [100.0], []

    def measure(_snapshot: Any) -> MemoryInUse:
        calls.append(now[0])
        return MemoryInUse(note=str(len(calls)))

    cached = Cached(measure, lambda: now[0])
    snapshot = decode(FakeCluster().json().encode())
    for seconds, expected in ((0, "1"), (CACHE_SECONDS - 1, "1"), (1, "2")):
        now[0] += seconds
        assert cached(snapshot).note == expected


def test_memory_that_cannot_be_attributed_names_what_would_show_it(
    live: Live, tmp_path: Path
) -> None:
    """Without the host's processes, a GPU of several pods has memory in use of no pod."""
    for node in ("n1", "n2"):
        document = usage(node, 3 * GIB)
        document["gpus"][0]["unattributedBytes"] = 2 * GIB
        live.objects[path(node)] = document
    note = live.figures(tmp_path).note
    assert note.startswith("4.0 GiB in use on 2 GPUs is of no known pod: ")
    assert "devicePlugin.hostProcesses=true" in note


def test_memory_of_no_pod_beside_that_of_pods_is_nothing_to_mend(
    live: Live, tmp_path: Path
) -> None:
    """Processes are visible: some of them run outside of pods."""
    live.objects[path("n1")]["gpus"][0]["unattributedBytes"] = GIB
    assert live.figures(tmp_path).note == ""
