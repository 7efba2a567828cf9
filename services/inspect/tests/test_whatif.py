"""``gpushare whatif``: the extender's decisions on a copy of the ledger."""

import json
from pathlib import Path

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import POD, Run

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {gpu: t4}
      containers:
      - name: model
        resources: {limits: {aliyun.com/gpu-mem: 8}}
"""


@pytest.fixture
def two_gpus(cluster: FakeCluster) -> FakeCluster:
    """One node with two GPUs of 15, the second with 7 in use."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], labels={"gpu": "t4"})
    return cluster.pod("a", 7, node="n", index=1)


def test_pods_are_placed_as_the_extender_would(
    run: Run, two_gpus: FakeCluster, manifest: Path
) -> None:
    """Best fit fills the fullest GPU first; the third replica fits nowhere and ends with 1."""
    manifest.write_text(DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert outcome.code == 1
    assert outcome.out.splitlines() == [
        "POD    NODE  WHERE",
        "web-0  n     8 GiB on GPU 1 of node n",
        "web-1  n     8 GiB on GPU 0 of node n",
        "web-2  -     fits no node: 1 node: largest free block 7 GiB, requested 8",
        "2 of 3 pods fit",
    ]


def test_a_request_that_no_node_can_take_is_refused_with_its_mistake(
    run: Run, two_gpus: FakeCluster, manifest: Path
) -> None:
    """The same sentence as the webhook's, with the label as the author has to write it."""
    labels = "metadata: {labels: {aliyun.com/gpu-count: two}}\n    spec:\n      nodeSelector"
    manifest.write_text(DEPLOYMENT.replace("spec:\n      nodeSelector", labels))
    assert (
        "fits no node: 1 node: The pod's request is invalid: its label aliyun.com/gpu-count is not"
        " a number of GPUs from 1 to 1023\n"
    ) in run("whatif", "-f", str(manifest), on=two_gpus).out


@pytest.mark.parametrize(("priority", "fits"), [(0, False), (5, False), (6, True)])
def test_capacity_reserved_for_a_nominated_pod(
    run: Run, two_gpus: FakeCluster, manifest: Path, priority: int, *, fits: bool
) -> None:
    """A new pod of the same or a lower priority does not get it, and reads why."""
    first = {"status": {"nominatedNodeName": "n"}, "spec": {"priority": 5}}
    two_gpus.pod("first", 15, phase="Pending", **first).pod("b", 1, node="n", index=1)
    manifest.write_text(POD.replace("spec:", f"spec:\n  priority: {priority}"))
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert outcome.code == (0 if fits else 1)
    assert ("capacity is reserved for 1 pod nominated to this node" in outcome.out) is not fits


def test_a_priority_class_is_named_where_priorities_decide(
    run: Run, two_gpus: FakeCluster, manifest: Path
) -> None:
    """The priority of a class is not read; it is asked for where pods are nominated to nodes."""
    manifest.write_text(POD.replace("spec:", "spec:\n  priorityClassName: high"))
    note = "one: PriorityClass high is not read, priority 0 is assumed: set spec.priority"
    assert note not in run("whatif", "-f", str(manifest), on=two_gpus).err
    two_gpus.pod("first", 15, phase="Pending", status={"nominatedNodeName": "n"})
    assert note in run("whatif", "-f", str(manifest), on=two_gpus).err


@pytest.mark.parametrize("name", ["name: one", "generateName: one-"])
def test_pods_of_equal_names_each_count(
    run: Run, two_gpus: FakeCluster, manifest: Path, name: str
) -> None:
    """Of different namespaces or kinds, or with generated names."""
    manifest.write_text("---".join([POD.replace("name: one", name)] * 4))
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert outcome.out.endswith("2 of 4 pods fit\n")


def test_texts_of_a_manifest_forge_no_line(run: Run, two_gpus: FakeCluster, manifest: Path) -> None:
    """A manifest may be of somebody else; the API server refuses such names later."""
    forged = r'"one\nforged\tn\e[2J"'
    pods = (POD, DEPLOYMENT.replace("gpu: t4", f"gpu: {forged}"))
    manifest.write_text("---".join(pods).replace("name: one", f"name: {forged}"))
    lines = run("whatif", "-f", str(manifest), on=two_gpus).out.splitlines()
    assert (len(lines), [line for line in lines if line.startswith("forged")]) == (6, [])


DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  template:
    spec:
      nodeSelector: {gpu: t4}
      tolerations: [{key: team, operator: Exists}]
      containers:
      - name: model
        resources: {limits: {aliyun.com/gpu-mem: 8}}
"""


@pytest.fixture
def many_nodes(two_gpus: FakeCluster) -> FakeCluster:
    """Nodes with and without the label, one full, one cordoned, one unready, two with a taint."""
    t4 = {"gpu": "t4"}
    two_gpus.node("full", gpus=[Gpu(15)], labels=t4).pod("b", 10, node="full", index=0)
    two_gpus.node("cordoned", gpus=[Gpu(15)], labels=t4, cordoned=True)
    two_gpus.node("other", gpus=[Gpu(15)], labels={"gpu": "a10"})
    two_gpus.node("unready", gpus=[Gpu(15)], labels=t4, ready=False)
    for name, key in (("of-team", "team"), ("of-others", "others")):
        two_gpus.node(name, gpus=[Gpu(15)], labels=t4)
        two_gpus.items[-1]["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    return two_gpus


def test_a_daemon_set_has_a_pod_for_each_node_that_it_matches(
    run: Run, many_nodes: FakeCluster, manifest: Path
) -> None:
    """As its controller decides: a cordon is tolerated, requests do not count, and no pod moves."""
    manifest.write_text(DAEMON_SET)
    outcome = run("whatif", "-f", str(manifest), on=many_nodes)
    assert outcome.code == 1
    assert outcome.out.splitlines() == [
        "POD             NODE      WHERE",
        "agent-cordoned  cordoned  8 GiB on GPU 0 of node cordoned",
        "agent-full      -         does not fit node full: largest free block 5 GiB, requested 8",
        "agent-n         n         8 GiB on GPU 1 of node n",
        "agent-of-team   of-team   8 GiB on GPU 0 of node of-team",
        "3 of 4 pods fit",
    ]
    assert "agent: a DaemonSet has one pod for each node that its node selector" in outcome.err
    document = json.loads(run("whatif", "-f", str(manifest), "-o", "json", on=many_nodes).out)
    assert document["items"][1]["text"] == "does not fit node full"


def test_a_daemon_set_sees_the_pods_before_it(
    run: Run, many_nodes: FakeCluster, manifest: Path
) -> None:
    """All objects of a file are placed in one simulation, in its order."""
    manifest.write_text(DEPLOYMENT.replace("replicas: 3", "replicas: 2") + "---" + DAEMON_SET)
    out = run("whatif", "-f", str(manifest), on=many_nodes).out
    assert "agent-n         -         does not fit node n: largest free block 7 GiB" in out


def test_a_daemon_set_has_pods_on_added_nodes(
    run: Run, many_nodes: FakeCluster, manifest: Path
) -> None:
    """They have the labels and taints of the node that they are like."""
    manifest.write_text(DAEMON_SET)
    for like, pods in (("n", 6), ("other", 4)):
        flags = ("--add-nodes=2", f"--like={like}")
        out = run("whatif", "-f", str(manifest), *flags, on=many_nodes).out
        assert f" of {pods} pods fit" in out


def test_a_daemon_set_that_matches_no_node_has_no_pod(
    run: Run, two_gpus: FakeCluster, manifest: Path
) -> None:
    """Nothing is pending then; the note names what decides."""
    manifest.write_text(DAEMON_SET.replace("gpu: t4", "gpu: none"))
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "0 of 0 pods fit")
    assert "one pod for each node that its node selector" in outcome.err


def test_replicas_of_a_daemon_set_are_refused(
    run: Run, two_gpus: FakeCluster, manifest: Path
) -> None:
    """The nodes decide how many pods it has."""
    manifest.write_text(DAEMON_SET)
    outcome = run("whatif", "-f", str(manifest), "--replicas=2", on=two_gpus)
    assert (outcome.code, outcome.out) == (1, "")
    assert "DaemonSet agent has one pod for each matching node: omit --replicas" in outcome.err


def test_added_nodes_are_empty_copies(run: Run, two_gpus: FakeCluster, manifest: Path) -> None:
    """With one more node like n everything fits, and the name shows that it is not there yet."""
    manifest.write_text(DEPLOYMENT)
    outcome = run("whatif", "-f", str(manifest), "--add-nodes=1", "--like=n", on=two_gpus)
    assert outcome.code == 0
    assert "n+1" in outcome.out
    assert outcome.out.splitlines()[-1] == "3 of 3 pods fit"


def test_replicas_override_the_manifest(run: Run, two_gpus: FakeCluster, manifest: Path) -> None:
    """``--replicas`` gives how many."""
    manifest.write_text(POD)
    outcome = run("whatif", "-f", str(manifest), "--replicas", "2", "-o", "json", on=two_gpus)
    document = json.loads(outcome.out)
    assert (document["requested"], document["fits"]) == (2, 2)
    assert [item["gpus"] for item in document["items"]] == [{"1": 8}, {"0": 8}]


def test_the_cluster_stays_as_it_is(run: Run, two_gpus: FakeCluster, manifest: Path) -> None:
    """Two manifests in one file see each other's pods; nothing else does."""
    manifest.write_text(f"{POD}\n---\n{POD.replace('one', 'two')}")
    out = run("whatif", "-f", str(manifest), "--no-headers", on=two_gpus).out
    assert out == "one  n  8 GiB on GPU 1 of node n\ntwo  n  8 GiB on GPU 0 of node n\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [({"cordoned": True}, "the node is cordoned"), ({"ready": False}, "the node is not ready")],
)
def test_nodes_that_take_no_pods_are_left_out(
    run: Run, cluster: FakeCluster, manifest: Path, change: dict[str, bool], words: str
) -> None:
    """A cordoned or unready node is no place, and is named as such."""
    cluster.node("n", gpus=[Gpu(15)], **change)
    manifest.write_text(POD)
    outcome = run("whatif", "-f", str(manifest), on=cluster)
    assert (outcome.code, f"fits no node: 1 node: {words}\n" in outcome.out) == (1, True)


def test_the_node_selector_is_obeyed(run: Run, cluster: FakeCluster, manifest: Path) -> None:
    """A node without the label is no place."""
    cluster.node("n", gpus=[Gpu(15)] * 4)
    manifest.write_text(DEPLOYMENT)
    assert run("whatif", "-f", str(manifest), on=cluster).out.endswith("0 of 3 pods fit\n")


@pytest.mark.parametrize(
    ("node", "answer"),
    [
        ("free", "one  free  8 GiB on GPU 0 of node free"),
        ("full", "one  -     does not fit node full: largest free block 7 GiB, requested 8"),
    ],
)
def test_a_pod_that_names_its_node_goes_there(
    run: Run, cluster: FakeCluster, manifest: Path, node: str, answer: str
) -> None:
    """Kubelet of that node gets it at once, cordoned or not, and no scheduler chooses another."""
    cluster.node("almost-full", gpus=[Gpu(15)]).pod("a", 7, node="almost-full", index=0)
    cluster.node("free", gpus=[Gpu(15)], cordoned=True)
    cluster.node("full", gpus=[Gpu(15)]).pod("b", 8, node="full", index=0)
    manifest.write_text(POD.replace("spec:", f"spec:\n  nodeName: {node}"))
    assert answer in run("whatif", "-f", str(manifest), on=cluster).out.splitlines()


def test_a_pod_that_names_a_node_that_does_not_exist_is_refused(
    run: Run, two_gpus: FakeCluster, manifest: Path
) -> None:
    """No kubelet would ever start it."""
    manifest.write_text(POD.replace("spec:", "spec:\n  nodeName: gone"))
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert (outcome.code, outcome.out) == (1, "")
    assert "one: the node gone of its spec.nodeName does not exist" in outcome.err


def test_a_limit_of_the_whole_pod_is_no_request_where_its_containers_request(
    run: Run, cluster: FakeCluster, manifest: Path
) -> None:
    """The API server sets the requests of the containers; a limit alone is the request too."""
    ours = {"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    cluster.node("n", gpus=[Gpu(15)], resources={**ours, "cpu": "4", "memory": "8Gi"})
    requests = 'requests: {cpu: 1}, limits: {aliyun.com/gpu-mem: "8"}'
    text = POD.replace('limits: {aliyun.com/gpu-mem: "8"}', requests)
    for limits, fits in (("cpu: 16", True), ("memory: 16Gi", False)):
        manifest.write_text(text.replace("spec:", f"spec:\n  resources: {{limits: {{{limits}}}}}"))
        outcome = run("whatif", "-f", str(manifest), on=cluster)
        assert (outcome.code, "8 GiB on GPU 0" in outcome.out) == (int(not fits), fits)


@pytest.mark.parametrize(
    ("beside", "noted"),
    [
        ("env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]", True),
        ("envFrom: [{prefix: CUDA_MPS_PIPE}]", True),
        ("env: [{name: NVIDIA_VISIBLE_DEVICES, value: none}]", False),
    ],
)
def test_a_pod_that_admission_refuses_is_noted(
    run: Run, two_gpus: FakeCluster, manifest: Path, beside: str, *, noted: bool
) -> None:
    """It has room on a node, and would not be created."""
    manifest.write_text(POD.replace("    resources", f"    {beside}\n    resources"))
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    note = "the webhook and the admission policy refuse the pod: remove it"
    assert (outcome.code, note in outcome.err) == (0, noted)


@pytest.mark.parametrize(
    "beside",
    ["env: [{name: A, value: }]", "envFrom: [{prefix: , configMapRef: {name: c}}]", "ports: "],
)
def test_a_key_without_a_value_is_no_key(
    run: Run, two_gpus: FakeCluster, manifest: Path, beside: str
) -> None:
    """Templates of manifests leave such keys, and the API server takes them."""
    labels = "metadata: {name: one, labels: {a: }, annotations: {b: }}"
    text = POD.replace("metadata: {name: one}", labels)
    manifest.write_text(text.replace("    resources", f"    {beside}\n    resources"))
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert (outcome.code, outcome.err.count("is not a manifest")) == (0, 0)


LARGE = (
    "spec: {replicas: 9999999999, template: {spec: {containers: "
    "[{name: c, resources: {limits: {aliyun.com/gpu-mem: 1}}}]}}}"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind: Service", "contains no Pod"),
        ("{", "is not a manifest of pods"),
        (
            "kind: Pod\nspec: {containers: [{name: x}]}",
            "add one under resources.limits, such as aliyun.com/gpu-mem: 4",
        ),
        ("kind: Pod\nmetadata: 3", "is not a manifest of pods: Pod: a field does not have"),
        ("kind: Deployment\n" + LARGE, "9999999999 pods are too many, the most is 100000"),
        ("kind: Pod\nspec: x", "is not a manifest of pods: Pod: a field does not have the type"),
        ("kind: List\nitems: 5", "is not a manifest of pods: a field does not have the type"),
    ],
)
def test_useless_manifests(
    run: Run, two_gpus: FakeCluster, manifest: Path, text: str, sentence: str
) -> None:
    """A file without a pod that requests GPUs is an error in one line."""
    manifest.write_text(text)
    outcome = run("whatif", "-f", str(manifest), on=two_gpus)
    assert (outcome.code, outcome.out) == (1, "")
    assert sentence in outcome.err


@pytest.mark.parametrize(
    "flags",
    [("--add-nodes=1",), ("--like=n",), ("--policy=best",), ("--replicas=0",)],
)
def test_wrong_flags(
    run: Run, two_gpus: FakeCluster, manifest: Path, flags: tuple[str, ...]
) -> None:
    """Flags that make no sense are a usage error, exit code 2."""
    manifest.write_text(POD)
    assert run("whatif", "-f", str(manifest), *flags, on=two_gpus).code == 2


def test_no_such_node_to_copy(run: Run, two_gpus: FakeCluster, manifest: Path) -> None:
    """``--like`` must name a node."""
    manifest.write_text(POD)
    outcome = run("whatif", "-f", str(manifest), "--add-nodes=1", "--like=x", on=two_gpus)
    assert (outcome.code, outcome.err) == (1, 'error: nodes "x" not found\n')


OLD_JOB = """
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: train}
spec:
  replicas: 2
  launcherResources: {limits: {cpu: 1}}
  template:
    spec:
      containers: [{name: mpi, resources: {limits: {aliyun.com/gpu-mem: 8}}}]
"""
NEW_JOB = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: train}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: mpi}]}}
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{name: mpi, resources: {limits: {aliyun.com/gpu-mem: 8}}}]
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [(OLD_JOB, ["train-0", "train-1"]), (NEW_JOB, ["train-worker-0", "train-worker-1"])],
)
def test_training_jobs(
    run: Run, two_gpus: FakeCluster, manifest: Path, text: str, names: list[str]
) -> None:
    """The job that arena submits, and its newer form with roles; a launcher requests nothing."""
    manifest.write_text(text)
    outcome = run("whatif", "-f", str(manifest), "-o", "json", on=two_gpus)
    document = json.loads(outcome.out)
    assert [item["name"] for item in document["items"]] == names
    assert document["fits"] == 2
