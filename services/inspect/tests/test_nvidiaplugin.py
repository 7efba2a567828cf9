"""NVIDIA's own device plugin is held off shared nodes, and is given back as it was."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakeapiserver import FakeApiServer
from invoking import Run
from jsonpatches import patched

from gpucore.wire.names import NVIDIA_DEPLOY_PLUGIN, NVIDIA_HELD_AFFINITY, NVIDIA_HELD_LABEL
from gpuinspect.controlplane.nvidia_plugin import (
    changed_since,
    hold,
    holders,
    release,
    static_plugins,
    without_shared_nodes,
)

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DAEMON_SETS, NODES, PODS = "/apis/apps/v1/daemonsets", "/api/v1/nodes", "/api/v1/pods"
EXCLUDED = [
    {"key": "gpushare", "operator": "NotIn", "values": ["true"]},
    {"key": "gputopology", "operator": "NotIn", "values": ["true"]},
]
PRESENT = {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}
AFFINITIES: dict[str, Object | None] = {
    "none": None,
    "terms": {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [PRESENT]}, {"matchFields": []}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        }
    },
    "pods": {"podAntiAffinity": {REQUIRED: []}},
}


def daemon_set(name: str = "nvidia-device-plugin", **spec: Any) -> Object:
    """A DaemonSet as the API server lists it; by default NVIDIA's plugin."""
    container = {"name": f"{name}-ctr", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}
    metadata = {"name": name, "namespace": "gpu", "resourceVersion": "7"}
    return {
        "metadata": metadata,
        "spec": {"template": {"spec": {"containers": [container], **spec}}},
        "selfLink": f"/apis/apps/v1/namespaces/gpu/daemonsets/{name}",
    }


def node(name: str, **labels: str) -> Object:
    """A node with labels."""
    metadata: Object = {"name": name, "resourceVersion": "3", "labels": {"os": "linux", **labels}}
    return {"metadata": metadata, "selfLink": f"/api/v1/nodes/{name}"}


def with_affinity(affinity: Object | None) -> Object:
    """NVIDIA's plugin with this affinity, or with none."""
    return daemon_set() if affinity is None else daemon_set(affinity=affinity)


def operators() -> Object:
    """The plugin of the GPU operator, which undoes changes of its DaemonSets."""
    item = daemon_set("nvidia-device-plugin-daemonset")
    item["metadata"]["ownerReferences"] = [{"kind": "ClusterPolicy", "name": "cluster-policy"}]
    return item


def same(one: Object, other: Object) -> bool:
    """Equal but for the version, to the byte."""
    texts = []
    for item in (one, other):
        plain = copy.deepcopy(item)
        del plain["metadata"]["resourceVersion"]
        texts.append(json.dumps(plain, sort_keys=True))
    return texts[0] == texts[1]


@pytest.mark.parametrize("kind", AFFINITIES)
def test_a_daemon_set_is_held_and_given_back_to_the_byte(kind: str) -> None:
    """Whatever affinity it has; holding twice changes nothing more."""
    item = with_affinity(AFFINITIES[kind])
    (patch,) = hold([item], [])
    held = patched(item, patch.operations)
    assert not same(held, item)
    assert list(hold([held], [])) == []
    (back,) = release([held], [])
    assert same(patched(held, back.operations), item)
    assert patch.path == item["selfLink"]


def test_every_alternative_excludes_shared_nodes() -> None:
    """Terms are alternatives: one without the expressions would let the plugin in."""
    found = without_shared_nodes(AFFINITIES["terms"])["nodeAffinity"]
    expressions, fields = found[REQUIRED]["nodeSelectorTerms"]
    assert expressions["matchExpressions"] == [PRESENT, *EXCLUDED]
    assert fields["matchExpressions"] == EXCLUDED
    alone = without_shared_nodes(None)["nodeAffinity"]
    assert alone == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": EXCLUDED}]}}


def test_an_alternative_that_matches_nothing_is_left_so() -> None:
    """With expressions it would match every node that is not shared."""
    empty: Object = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}
    assert without_shared_nodes(empty) == empty


def test_other_daemon_sets_are_left_alone() -> None:
    """Also those that run the same image for something else, and our own plugin."""
    others = [daemon_set("nvidia-mps-control-daemon"), daemon_set("gpushare-device-plugin")]
    others += [daemon_set("gpu-feature-discovery")]
    assert list(hold(others, [node("n", gpushare="true")])) == []


def test_the_operators_plugin_is_held_by_its_node_label() -> None:
    """Of shared nodes alone; each gets back the value that it had, or none."""
    nodes = [
        node("fresh", gpushare="true"),
        node("deployed", gputopology="true", **{NVIDIA_DEPLOY_PLUGIN: "true"}),
        node("held", gpushare="true", **{NVIDIA_DEPLOY_PLUGIN: "false"}),
        node("other", gpushare="false"),
    ]
    patches = list(hold([operators()], nodes))
    assert [patch.path for patch in patches] == [item["selfLink"] for item in nodes[:2]]
    for item, patch in zip(nodes, patches, strict=False):
        held = patched(item, patch.operations)
        assert held["metadata"]["labels"][NVIDIA_DEPLOY_PLUGIN] == "false"
        (back,) = release([operators()], [held])
        assert same(patched(held, back.operations), item)


DEEP = ["[" * 100_000, '{"a":' * 480 + "1" + "}" * 480]
"""Refused where it is parsed, and where it is copied."""
NO_AFFINITY = ["null", "{", "3", '{"nodeAffinity": 3}', '{"nodeAffinity": {}}', *DEEP]


@pytest.mark.parametrize("text", NO_AFFINITY)
def test_what_was_changed_since_is_named_and_left(text: str) -> None:
    """An affinity or annotation of another program does not keep the others from being restored."""
    strange = daemon_set(affinity={"podAffinity": {}})
    strange["metadata"]["annotations"] = {NVIDIA_HELD_AFFINITY: text}
    (patch,) = hold([daemon_set()], [])
    held = patched(daemon_set(), patch.operations)
    assert list(changed_since([strange, held])) == ["DaemonSet gpu/nvidia-device-plugin"]
    (back,) = release([strange, held], [])
    assert same(patched(held, back.operations), daemon_set())


@pytest.mark.parametrize("text", ["{", "3", "{}", *DEEP])
def test_a_strange_annotation_of_a_node_is_left(text: str) -> None:
    """Only a value that hold writes is taken for one."""
    item = node("n", gpushare="true")
    item["metadata"]["annotations"] = {NVIDIA_HELD_LABEL: text}
    assert list(release([], [item])) == []


def pod_on(node_name: str, *, place: str = "containers", phase: str = "Running") -> Object:
    """A pod that was given a GPU by NVIDIA's plugin."""
    box = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec: Object = {"nodeName": node_name, "containers": [{"name": "plain"}]}
    spec[place] = [*spec.get(place, ()), box]
    return {
        "metadata": {"name": "p", "namespace": "team"},
        "spec": spec,
        "status": {"phase": phase},
    }


@pytest.mark.parametrize("place", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("labels", "phase", "named"),
    [
        ({"gpushare": "true"}, "Running", True),
        ({"gputopology": "true"}, "Pending", True),
        ({"gpushare": "true"}, "Succeeded", False),
        ({"gpushare": "true"}, "Failed", False),
        ({"gpushare": "false"}, "Running", False),
        ({"gputopology": ""}, "Running", False),
        ({}, "Running", False),
    ],
)
def test_pods_that_keep_gpus_of_shared_nodes_are_named(
    place: str, labels: dict[str, str], phase: str, *, named: bool
) -> None:
    """Also where only an init container has one: it may still run."""
    found = list(holders([pod_on("n", place=place, phase=phase)], [node("n", **labels)]))
    assert found == (["team/p on n"] if named else [])


def test_pods_without_gpus_or_nodes_hold_none() -> None:
    """A pod that waits has no node yet."""
    plain = pod_on("n")
    plain["spec"]["containers"] = [{"name": "plain"}]
    waits = pod_on("n")
    del waits["spec"]["nodeName"]
    assert list(holders([plain, waits], [node("n", gpushare="true")])) == []


@pytest.mark.parametrize(
    ("container", "owner", "named"),
    [
        ("nvidia-device-plugin-ctr", "Node", True),
        ("nvidia-device-plugin-ctr", "DaemonSet", False),
        ("etcd", "Node", False),
    ],
)
def test_a_static_plugin_is_one_that_its_node_owns(
    container: str, owner: str, *, named: bool
) -> None:
    """Pods of a DaemonSet are held by it, and other static pods are no plugins."""
    item: Object = {
        "metadata": {"name": "s", "namespace": "k", "ownerReferences": [{"kind": owner}]},
        "spec": {"nodeName": "n", "containers": [{"name": container}]},
    }
    assert list(static_plugins([item])) == (["k/s on n"] if named else [])


def test_a_label_that_somebody_removed_since_is_no_obstacle() -> None:
    """The node gets the value that it had, or keeps none."""
    for before in ({}, {NVIDIA_DEPLOY_PLUGIN: "true"}):
        item = node("n", gpushare="true", **before)
        (patch,) = hold([operators()], [item])
        held = patched(item, patch.operations)
        del held["metadata"]["labels"][NVIDIA_DEPLOY_PLUGIN]
        (back,) = release([], [held])
        assert same(patched(held, back.operations), item)


def test_every_change_is_bound_to_the_version_that_was_read() -> None:
    """The first operation of each patch is a test of it."""
    item, one = daemon_set(), node("n", gpushare="true")
    (held_set,) = hold([item], [])
    (held_node,) = hold([operators()], [one])
    (back_set,) = release([patched(item, held_set.operations)], [])
    (back_node,) = release([], [patched(one, held_node.operations)])
    tests = [each.operations[0] for each in (held_set, held_node, back_set, back_node)]
    path = {"op": "test", "path": "/metadata/resourceVersion"}
    assert [each["op"] for each in tests] == ["test"] * 4
    assert [each["path"] for each in tests] == [path["path"]] * 4


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """NVIDIA's plugin, the operator's, a shared node, and pods that have GPUs."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    holder: Object = {
        "metadata": {"name": "trainer", "namespace": "team"},
        "spec": {"nodeName": "a", "containers": [{"name": "c", **limits}]},
        "status": {"phase": "Running"},
    }
    ended = copy.deepcopy(holder) | {"status": {"phase": "Succeeded"}}
    elsewhere = copy.deepcopy(holder)
    elsewhere["spec"]["nodeName"] = "b"
    static: Object = {
        "metadata": {
            "name": "nvidia-device-plugin-a",
            "namespace": "kube-system",
            "ownerReferences": [{"kind": "Node", "name": "a"}],
        },
        "spec": {"nodeName": "a", "containers": [{"name": "nvidia-device-plugin-ctr"}]},
        "status": {"phase": "Running"},
    }
    lists = {
        DAEMON_SETS: [daemon_set(), operators(), daemon_set("kube-proxy")],
        NODES: [node("a", gpushare="true"), node("b")],
        PODS: [holder, ended, elsewhere, static],
    }
    fake = FakeApiServer(lists)
    with fake.serving():
        yield fake


def test_commands_show_first_and_then_change(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """Without --apply nothing is sent; with it all is held, and all given back."""
    access = ("--kubeconfig", str(server.kubeconfig(tmp_path)))
    before = copy.deepcopy(server.lists)
    shown = run("hold-nvidia-plugin", *access)
    assert (shown.code, server.lists) == (0, before)
    assert "DaemonSet gpu/nvidia-device-plugin: exclude it" in shown.out
    assert f"Node a: label {NVIDIA_DEPLOY_PLUGIN}=false" in shown.out
    assert "nothing was changed" in shown.err

    held = run("hold-nvidia-plugin", "--apply", *access)
    assert (held.code, held.out) == (0, shown.out)
    assert "nothing to do" in run("hold-nvidia-plugin", "--apply", *access).err
    assert run("release-nvidia-plugin", "--apply", *access).code == 0
    for path, items in before.items():
        for one, other in zip(items, server.lists[path], strict=True):
            assert one is other or path == PODS or same(one, other)


def test_what_no_patch_can_hold_is_reported(
    run: Run, server: FakeApiServer, tmp_path: Path
) -> None:
    """Static pods, and running pods whose GPUs could be allocated a second time."""
    output = run("hold-nvidia-plugin", "--kubeconfig", str(server.kubeconfig(tmp_path))).err
    assert "kube-system/nvidia-device-plugin-a on a is a static pod" in output
    assert output.count("team/trainer on a keeps its GPUs") == 1
    assert "trainer on b" not in output


def test_a_change_in_between_is_an_error(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """A patch applies to the version that was read, or not at all."""
    item = with_affinity(None)
    (patch,) = hold([item], [])
    item["metadata"]["resourceVersion"] = "8"
    server.lists[DAEMON_SETS] = [item]
    assert server.patched(patch.path, list(patch.operations))[0] == 422
    server.statuses[DAEMON_SETS] = 403
    outcome = run("hold-nvidia-plugin", "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert (outcome.code, "403" in outcome.err) == (1, True)


def test_an_object_that_changes_all_the_time_keeps_no_other_back(
    run: Run, server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may have a DaemonSet of this name, and a node has a heartbeat."""
    first, apply = server.lists[DAEMON_SETS][0]["selfLink"], server.patched

    def changing(path: str, operations: list[Object]) -> tuple[int, Object]:
        return (422, {"message": "it has changed"}) if path == first else apply(path, operations)

    monkeypatch.setattr(server, "patched", changing)
    flag = f"--kubeconfig={server.kubeconfig(tmp_path)}"
    outcome = run("hold-nvidia-plugin", "--apply", flag)
    assert outcome.code == 1
    assert "not done, the object has changed meanwhile" in " ".join(outcome.err.split())
    assert server.lists[NODES][0]["metadata"]["labels"][NVIDIA_DEPLOY_PLUGIN] == "false"


@pytest.mark.parametrize("command", ["hold-nvidia-plugin", "release-nvidia-plugin"])
def test_a_refused_read_names_the_server_and_the_next_step(
    run: Run, server: FakeApiServer, tmp_path: Path, command: str
) -> None:
    """In three lines, as of all commands that read a cluster."""
    server.statuses[DAEMON_SETS] = 401
    outcome = run(command, "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert (outcome.code, outcome.out) == (1, "")
    first, where, step = outcome.err.splitlines()
    assert first.startswith("error: the API server does not accept the credentials: GET ")
    assert where.startswith(f"  where: server {server.url}, context here")
    assert step.startswith("  next: log in again")
