"""``gpushare inspect`` beyond the original: notes, wide, documents, selection, mixed units."""

import json
from pathlib import Path

import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from invoking import Run


@pytest.fixture
def mixed(cluster: FakeCluster) -> FakeCluster:
    """A T4 with an A100 on one node, and a cordoned node with a unhealthy GPU."""
    cluster.node("n1", address="10.0.0.1", gpus=[Gpu(15), Gpu(39, "NVIDIA A100-PCIE-40GB")])
    sick = Gpu(15, healthy=False, mode="mps")
    cluster.node("n2", gpus=[Gpu(15, mode="mps"), sick], cordoned=True, labels={"zone": "b"})
    return cluster.pod("p", 20, node="n1", index=1, namespace="team")


def test_gpus_of_one_node_have_their_own_sizes(run: Run, mixed: FakeCluster) -> None:
    """The published inventory is shown, not an average."""
    assert run("inspect", on=mixed).out.splitlines()[1].split()[2:] == ["0/15", "20/39", "20/54"]


def test_marks_are_notes_beside_the_table(run: Run, mixed: FakeCluster) -> None:
    """Cordoned nodes and unhealthy GPUs are named, with the totals that take new pods."""
    assert run("inspect", on=mixed).err.splitlines() == [
        "note: n2 is cordoned: it accepts no new pods",
        "note: n2 GPU1 is unhealthy: it accepts no new pods",
        "note: without cordoned and unready nodes and unhealthy GPUs: 20/54 (37%)",
    ]


def test_wide_marks_in_columns(run: Run, mixed: FakeCluster) -> None:
    """Status, unit, driver, mode and model have columns; marks are words."""
    lines = run("inspect", "-o", "wide", on=mixed).out.splitlines()
    assert lines[0].split()[:7] == [
        "NAME",
        "STATUS",
        "IPADDRESS",
        "UNIT",
        "DRIVER",
        "MODE",
        "MODEL",
    ]
    assert lines[2].split()[1] == "Ready,SchedulingDisabled"
    assert "0/15(unhealthy)" in lines[2]
    assert "mps" in lines[2]


def test_wide_names_what_is_unusual_of_a_gpu_in_the_words_of_the_other_views(
    run: Run, cluster: FakeCluster
) -> None:
    """A GPU beyond its memory, and one that a pod has to itself."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "32", "aliyun.com/gpu-count": "2"}
    cluster.node("n1", gpus=[Gpu(16), Gpu(16)], resources=have)
    cluster.pod("over", 20, node="n1", index=0)
    group = {"ALIYUN_COM_GPU_GROUP": "1"}
    cluster.pod("whole", node="n1", annotations=group, limits={"aliyun.com/gpu": "1"})
    row = run("inspect", "-o", "wide", on=cluster).out.splitlines()[1]
    assert "20/16(over-full)" in row
    assert "(exclusive)" in row


def test_a_gpu_that_a_share_has_alone_is_exclusive(run: Run, cluster: FakeCluster) -> None:
    """Its pod holds all of it, as for the scheduler extender: nothing is left to share."""
    cluster.node("n1", gpus=[Gpu(16), Gpu(16)])
    cluster.pod("p", 2, node="n1", index=0, annotations={"gpushare/exclusive": "true"})
    (node,) = json.loads(run("inspect", "-o", "json", on=cluster).out)["items"]
    assert [(gpu["allocated"], gpu["exclusive"]) for gpu in node["gpus"]] == [
        (16, True),
        (0, False),
    ]
    assert (node["allocated"], node["pods"][0]["gpus"]) == (16, {"0": 16})


def test_an_unhealthy_gpu_that_kubelet_has_withdrawn_counts_once(
    run: Run, cluster: FakeCluster
) -> None:
    """The original plugin withdraws its units, and a ConfigMap lists it: the other GPU is left."""
    cluster.node("n1", total=30, count=2, allocatable={"aliyun.com/gpu-mem": "15"})
    metadata = {"name": "unhealthy-gpu-n1", "namespace": "kube-system"}
    cluster.add({"kind": "ConfigMap", "metadata": metadata, "data": {"gpus": "0"}})
    document = json.loads(run("inspect", "-o", "json", on=cluster).out)
    assert document["schedulable"] == {"allocated": 0, "total": 15}


def test_json_and_yaml_say_the_same(run: Run, mixed: FakeCluster) -> None:
    """One document in two notations, with its version and kind."""
    document = json.loads(run("inspect", "-o", "json", on=mixed).out)
    assert document == yaml.safe_load(run("inspect", "-o", "yaml", on=mixed).out)
    assert (document["apiVersion"], document["kind"]) == ("gpushare/v1", "NodeShareList")
    assert document["cluster"] == {"allocated": 20, "total": 84}
    assert document["schedulable"] == {"allocated": 20, "total": 54}
    pod = document["items"][0]["pods"][0]
    assert (pod["namespace"], pod["name"], pod["gpus"]) == ("team", "p", {"1": 20})


def test_names_are_for_pipes(run: Run, mixed: FakeCluster) -> None:
    """``-o name`` prints what kubectl takes."""
    assert run("inspect", "-o", "name", on=mixed).out == "node/n1\nnode/n2\n"


def test_rows_only(run: Run, mixed: FakeCluster) -> None:
    """``--no-headers`` leaves out head, dashes and totals."""
    rows = run("inspect", "--no-headers", on=mixed).out.splitlines()
    assert [row.split()[0] for row in rows] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("zone=b", ["n2"]),
        ("zone!=b", ["n1"]),
        ("zone in (a, b),gpushare", ["n2"]),
        ("zone notin (b)", ["n1"]),
        ("!zone", ["n1"]),
        ("", ["n1", "n2"]),
    ],
)
def test_selectors(run: Run, mixed: FakeCluster, selector: str, names: list[str]) -> None:
    """``-l`` chooses nodes by label as kubectl does."""
    rows = run("inspect", "--no-headers", "-l", selector, on=mixed).out.splitlines()
    assert [row.split()[0] for row in rows] == names


def test_a_wrong_selector(run: Run, mixed: FakeCluster) -> None:
    """Text that is no selector is an error in one line."""
    outcome = run("inspect", "-l", "a b", on=mixed)
    assert (outcome.code, outcome.out) == (1, "")
    assert "not a label selector" in outcome.err


def test_one_namespace(run: Run, mixed: FakeCluster) -> None:
    """``-n`` chooses the rows of details; the sums stay those of the node."""
    mixed.pod("q", 3, node="n1", index=0)
    out = run("inspect", "-d", "n1", "-n", "team", on=mixed).out
    assert "Allocated :  23 (42%)" in out
    assert ("team" in out, "default" in out) == (True, False)


def test_a_node_without_a_number_of_gpus(run: Run, cluster: FakeCluster) -> None:
    """Memory without GPUs has a total and no columns, and changes no other node's unit."""
    cluster.node("n1", total=30, count=0).node("n2", total=32260, count=2)
    outcome = run("inspect", on=cluster)
    assert outcome.out.splitlines()[0].endswith("GPU Memory(MiB)")
    assert outcome.out.splitlines()[1].split() == ["n1", "unknown", "0/0", "0/0", "0/30"]


def test_compute_alone_has_no_row_in_details(run: Run, cluster: FakeCluster) -> None:
    """The original's table is about memory; a pod that holds none is not in it."""
    cluster.node("n", gpus=[Gpu(15)])
    core = {"aliyun.com/gpu-core.percentage": "50"}
    cluster.pod("core", node="n", index=0, limits=core).pod("mem", 2, node="n", index=0)
    out = run("inspect", "-d", on=cluster).out
    assert ("mem" in out, "core" in out) == (True, False)


def test_nodes_with_two_units_are_shown_in_mib(run: Run, cluster: FakeCluster) -> None:
    """Figures of different units are never added up; both become MiB."""
    cluster.node("n1", gpus=[Gpu(15)]).pod("p", 3, node="n1", index=0)
    cluster.node("n2", gpus=[Gpu(60)], unit="256MiB").pod("q", 4, node="n2", index=0)
    outcome = run("inspect", on=cluster)
    assert outcome.out.splitlines()[0].endswith("GPU Memory(MiB)")
    assert outcome.out.splitlines()[-1] == "4096/30720 (13%)  "
    assert "nodes use different units; all figures are in MiB" in outcome.err


@pytest.mark.parametrize(("units", "unit"), [(100, "GiB"), (101, "MiB")])
def test_the_unit_of_an_original_plugin_is_guessed_as_the_original_did(
    run: Run, cluster: FakeCluster, units: int, unit: str
) -> None:
    """More than 100 units a GPU are taken for MiB, where the node states nothing."""
    cluster.node("n", total=units)
    assert run("inspect", on=cluster).out.splitlines()[0].endswith(f"GPU Memory({unit})")


def test_the_unit_of_a_large_gpu_that_names_it_is_not_guessed(
    run: Run, cluster: FakeCluster
) -> None:
    """140 GiB are 140 GiB."""
    cluster.node("n", gpus=[Gpu(140, "NVIDIA H200")])
    assert run("inspect", on=cluster).out.splitlines()[0].endswith("GPU Memory(GiB)")


def test_a_whole_gpu_is_in_use_entirely(run: Run, cluster: FakeCluster) -> None:
    """A GPU that a pod holds whole has nothing left to share."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=have)
    group = {"ALIYUN_COM_GPU_GROUP": "1"}
    cluster.pod("w", node="n", annotations=group, limits={"aliyun.com/gpu": "1"})
    assert run("inspect", on=cluster).out.splitlines()[1].split()[2:] == ["0/15", "15/15", "15/30"]


def test_over_full_gpus_are_noted(run: Run, cluster: FakeCluster) -> None:
    """More than there is is shown as it is, with a note."""
    cluster.node("n", total=15).pod("p", 9, node="n", index=0).pod("q", 9, node="n", index=0)
    outcome = run("inspect", on=cluster)
    assert outcome.out.splitlines()[1].split()[2] == "18/15"
    assert "note: n GPU0 is over-full: 18 of 15 GiB" in outcome.err


def test_units_on_a_gpu_that_is_gone(run: Run, cluster: FakeCluster) -> None:
    """They count for the node and are noted, since no column is theirs."""
    cluster.node("n", total=15).pod("p", 2, node="n", index=3)
    outcome = run("inspect", on=cluster)
    assert outcome.out.splitlines()[1].split()[2:] == ["0/15", "2/15"]
    assert "2 GiB are allocated on GPUs that the node no longer has" in outcome.err


def test_no_node_shares(run: Run, cluster: FakeCluster) -> None:
    """Nothing to show is no error, and nothing is printed where data belongs."""
    cluster.node("n", resources={"cpu": "4"})
    outcome = run("inspect", on=cluster)
    assert (outcome.code, outcome.out) == (0, "")
    assert "no node offers shares" in outcome.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\N{BOM}",
        '{"kind": "Pod"}',
        '{"items": [{"kind": 3}]}',
        '{"items": [{"kind": "Node", "metadata": 3}]}',
        '{"items": [{"kind": "Pod", "metadata": {"name": 1}}]}',
        f'{{"items": {"[" * 5000}',
    ],
)
def test_files_that_are_no_snapshot(run: Run, tmp_path: Path, text: str) -> None:
    """A file of another kind is refused with what is wanted."""
    path = tmp_path / "file"
    path.write_text(text)
    outcome = run("inspect", "--snapshot", str(path))
    assert (outcome.code, outcome.out) == (1, "")
    assert "what 'kubectl get nodes,pods -A -o json' prints" in outcome.err


@pytest.mark.parametrize("command", ["inspect", "doctor"])
def test_objects_of_other_kinds_that_cannot_be_read(
    run: Run, cluster: FakeCluster, command: str
) -> None:
    """A broken config map is an error in one line, not a traceback."""
    cluster.node("n", total=15).add({"kind": "ConfigMap", "metadata": {"name": 3}})
    outcome = run(command, on=cluster)
    assert outcome.code == 1
    assert outcome.err.startswith("error: an object is no ConfigMap: ")


def test_a_file_that_is_not_there(run: Run) -> None:
    """A missing file is an error with its name."""
    outcome = run("inspect", "--snapshot", "/nowhere/at/all")
    assert "cannot read the snapshot /nowhere/at/all" in outcome.err


def test_unknown_flags_are_usage_errors(run: Run) -> None:
    """A mistyped flag ends with exit code 2."""
    assert run("inspect", "--detials").code == 2


@pytest.mark.parametrize(("order", "expected"), [("name", "abc"), ("free", "bac"), ("used", "cab")])
def test_nodes_are_sorted(run: Run, cluster: FakeCluster, order: str, expected: str) -> None:
    """By name, or by the part of the memory that is free or allocated."""
    for name, units in (("c", 12), ("a", 6), ("b", 0)):
        cluster.node(name, gpus=[Gpu(15)])
        cluster.pod(f"on-{name}", units, node=name, index=0)
    out = run("inspect", "--sort-by", order, "-o", "name", on=cluster).out
    assert out == "".join(f"node/{name}\n" for name in expected)


def test_a_pod_that_may_use_more_than_its_share_is_shown_with_both(run: Run) -> None:
    """Only on GPUs whose memory the driver limits, and never more than the GPU."""
    cluster = FakeCluster()
    gpus = [Gpu(15, mode="driver"), Gpu(15), Gpu(15, mode="driver+mps")]
    cluster.node("n1", gpus=gpus)
    for index, (name, limit) in enumerate((("a", "12"), ("b", "12"), ("c", "40"))):
        annotations = {"gpushare/memory-limit": limit}
        cluster.pod(name, 8, node="n1", index=index, annotations=annotations)
    rows = run("inspect", "-d", on=cluster).out.splitlines()
    shown = {row.split()[0]: " ".join(row.split()[2:]) for row in rows if " default " in row}
    assert shown == {"a": "8 (to 12) 0 0", "b": "0 8 0", "c": "0 0 8 (to 15)"}
    document = json.loads(run("inspect", "-d", "-o", "json", on=cluster).out)
    limits = {pod["name"]: pod["limits"] for pod in document["items"][0]["pods"]}
    assert limits == {"a": {"0": 12}, "b": {}, "c": {"2": 15}}
