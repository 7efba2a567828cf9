"""``gpushare top node``: arena's tables."""

import json
from pathlib import Path

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

NODE = "cn-shanghai.i-uf61h64dz1tmlob9hmtb"
POD = "mymnist2-tensorflow-serving-7446c98547-qmtrn"


@pytest.fixture
def arena(cluster: FakeCluster) -> FakeCluster:
    """The node of arena's guide: one GPU of 15, a serving pod with 3."""
    return cluster.node(NODE, address="192.168.0.71", total=15).pod(POD, 3, node=NODE, index=0)


def test_share_nodes(run: Run, arena: FakeCluster) -> None:
    """``-s`` prints the guide's table: every cell padded, dashes 20 beyond the raw row."""
    lines = run("top", "node", "-s", on=arena).out.splitlines()
    assert lines == [
        f"NAME{' ' * 32}IPADDRESS     GPU0(Allocated/Total)  ",
        f"{NODE}  192.168.0.71  3/15                   ",
        "-" * 74,
        "Allocated/Total GPU Memory In GPUShare Node:",
        "3/15 (GiB) (20%)  ",
    ]


def test_share_nodes_in_detail(run: Run, arena: FakeCluster) -> None:
    """``-s -d`` prints the guide's block with its dashes and its footer."""
    lines = run("top", "node", "-s", "-d", on=arena).out.splitlines()
    assert lines[5].split() == [POD, "default", "3"]
    assert lines[6].split() == ["Allocated", ":", "3", "(20%)"]
    assert lines[7].split() == ["Total", ":", "15"]
    assert lines[8] == "-" * 66
    assert lines[-1] == "3/15 (GiB) (20%)  "


def test_summary_has_a_shareable_column(run: Run, arena: FakeCluster) -> None:
    """A share node is marked; its allocation is a fraction of its GPUs; all nodes are shown."""
    arena.node("zcpu", resources={"cpu": "4"}, labels={"node-role.kubernetes.io/master": ""})
    lines = run("top", "node", on=arena).out.splitlines()
    assert lines[0].split() == [
        "NAME",
        "IPADDRESS",
        "ROLE",
        "STATUS",
        "GPU(Total)",
        "GPU(Allocated)",
        "GPU(Shareable)",
    ]
    assert lines[1].split() == [NODE, "192.168.0.71", "<none>", "ready", "1", "0.2", "Yes"]
    assert lines[2].split() == ["zcpu", "unknown", "master", "ready", "0", "0", "No"]
    assert lines[3] == "-" * 96
    assert lines[4:] == ["Allocated/Total GPUs In Cluster:", "0.2/1 (20%)  "]


def test_exclusive_nodes_have_neither_column(run: Run, cluster: FakeCluster) -> None:
    """NVIDIA's own resource is counted from the pods' limits; the dashes are 89 long."""
    cluster.node("n", resources={"nvidia.com/gpu": "4"})
    cluster.pod("p", node="n", limits={"nvidia.com/gpu": "2"})
    lines = run("top", "node", on=cluster).out.splitlines()
    assert "Shareable" not in lines[0]
    assert lines[1].split()[-2:] == ["4", "2"]
    assert lines[2] == "-" * 89
    assert lines[-1] == "2/4 (50%)  "


def test_nodes_that_are_not_ready_have_a_total_of_their_own(run: Run, arena: FakeCluster) -> None:
    """The footer then gives the active nodes too."""
    arena.node("down", total=15, ready=False)
    lines = run("top", "node", on=arena).out.splitlines()
    assert lines[2].split()[3] == "notReady"
    assert lines[-4:] == [
        "Allocated/Total GPUs In Cluster:",
        "0.2/2 (10%)  ",
        "Allocated/Total GPUs(Active) In Cluster:",
        "0.2/1 (20%)  ",
    ]


def test_sick_gpus_have_a_column(run: Run, cluster: FakeCluster) -> None:
    """The unhealthy column and footer appear with the first unhealthy GPU; dashes are 107 long."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15, healthy=False)])
    lines = run("top", "node", on=cluster).out.splitlines()
    assert lines[0].split()[-2:] == ["GPU(Unhealthy)", "GPU(Shareable)"]
    assert lines[1].split()[-2:] == ["1", "Yes"]
    assert lines[2] == "-" * 107
    assert lines[-2:] == ["Unhealthy/Total GPUs In Cluster:", "1/2 (50%)  "]


def test_details_give_shares_as_fractions(run: Run, arena: FakeCluster) -> None:
    """A pod with 3 of 15 units requests 0.20 of a GPU."""
    out = run("top", "node", "-d", on=arena).out
    lines = out.splitlines()
    assert [line.split() for line in lines if POD in line] == [["default", POD, "0.20"]]
    assert f"Allocated GPUs In Node {NODE}:  0.2 (20%)" in out
    assert "If Node is Shareable :" in out
    assert "-" * 89 in lines
    assert lines[-1] == "Allocated/Total GPUs In Cluster:  0.2/1 (20%)  "


def test_a_share_as_large_as_its_gpu_is_a_fraction_too(run: Run, cluster: FakeCluster) -> None:
    """Arena prints two decimals of every share, and exclusive GPUs as a number."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=have)
    cluster.pod("share", 15, node="n", index=0)
    whole = {"annotations": {"ALIYUN_COM_GPU_GROUP": "1"}}
    cluster.pod("whole", node="n", limits={"aliyun.com/gpu": "1"}, metadata=whole)
    lines = run("top", "node", "-d", on=cluster).out.splitlines()
    rows = [line.split() for line in lines if line.startswith("default")]
    assert rows == [["default", "share", "1.00"], ["default", "whole", "1"]]


def test_details_have_unhealthy_gpus_in_percent(run: Run, cluster: FakeCluster) -> None:
    """Of the node, and of the cluster in the last line."""
    have = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15, healthy=False)], resources=have)
    cluster.node("m", gpus=[Gpu(15), Gpu(15)], resources=have)
    lines = [line.rstrip() for line in run("top", "node", "-d", on=cluster).out.splitlines()]
    (unhealthy,) = [line for line in lines if line.startswith("Unhealthy GPUs In Node")]
    assert unhealthy.split()[-3:] == ["n:", "1", "(50%)"]
    assert lines[-1].split(":")[0] == "Unhealthy/Total GPUs In Cluster"
    assert lines[-1].split()[-2:] == ["1/4", "(25%)"]


def test_a_node_with_two_kinds_is_refused(run: Run, cluster: FakeCluster) -> None:
    """A node that offers its GPUs twice is an error, in arena's words."""
    both = {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    cluster.node("n", resources=both)
    outcome = run("top", "node", on=cluster)
    assert (outcome.code, outcome.out) == (1, "")
    assert (
        "nvidia.com/gpu and aliyun.com/gpu-mem are both used in node n ."
        "Please use one kind resource of them"
    ) in outcome.err


def test_a_node_with_two_kinds_does_not_end_the_list_of_another_kind(
    run: Run, cluster: FakeCluster
) -> None:
    """``-m`` chooses first; the node is an error only where it is chosen."""
    both = {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    cluster.node("n", resources=both).node("cpu", resources={"cpu": "4"})
    assert run("top", "node", "-m", "none", "-o", "name", on=cluster).out == "node/cpu\n"
    assert run("top", "node", "-m", "share", on=cluster).code == 1


def test_a_plugin_that_stopped_does_not_offer_gpus(run: Run, cluster: FakeCluster) -> None:
    """Its capacity remains for minutes, with nothing allocatable: the GPUs are counted once."""
    both = {"nvidia.com/gpu": "1", "aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1"}
    cluster.node("n", gpus=[Gpu(15)], resources=both, allocatable={"nvidia.com/gpu": "0"})
    row = run("top", "node", "--no-headers", on=cluster).out.split()
    assert row[4:] == ["1", "0", "Yes"]


def test_a_plugin_that_stopped_does_not_offer_exclusive_gpus(
    run: Run, cluster: FakeCluster
) -> None:
    """A node with exclusive GPUs alone: those of NVIDIA's plugin are the same GPUs."""
    both = {"nvidia.com/gpu": "1", "aliyun.com/gpu": "1", "aliyun.com/gpu-count": "1"}
    cluster.node("n", gpus=[Gpu(15)], resources=both, allocatable={"nvidia.com/gpu": "0"})
    (found,) = json.loads(run("top", "node", "-o", "json", on=cluster).out)["items"]
    assert (found["total"], found["unhealthy"]) == (1, 0)


def test_unhealthy_gpus_of_nvidias_plugin_are_counted(run: Run, cluster: FakeCluster) -> None:
    """They are the capacity that kubelet does not allocate, as in arena."""
    cluster.node("n", resources={"nvidia.com/gpu": "4"}, allocatable={"nvidia.com/gpu": "3"})
    lines = run("top", "node", on=cluster).out.splitlines()
    assert lines[1].split()[-3:] == ["4", "0", "1"]
    assert lines[-2:] == ["Unhealthy/Total GPUs In Cluster:", "1/4 (25%)  "]


def test_document(run: Run, arena: FakeCluster) -> None:
    """Programs get the same figures with more digits."""
    document = json.loads(run("top", "node", "-o", "json", on=arena).out)
    assert (document["apiVersion"], document["kind"]) == ("gpushare/v1", "NodeGpuList")
    node = document["items"][0]
    assert (node["total"], node["allocated"], node["shareable"]) == (1, 0.2, True)
    assert node["pods"] == [{"namespace": "default", "name": POD, "gpus": 0.2}]


@pytest.mark.parametrize(("units", "shown"), [(1, "0.1"), (15, "1"), (4, "0.3")])
def test_fractions_are_tenths(run: Run, cluster: FakeCluster, units: int, shown: str) -> None:
    """GPUs in use are rounded to a tenth, but a share never looks like nothing."""
    cluster.node("n", total=15).pod("p", units, node="n", index=0)
    assert run("top", "node", on=cluster).out.splitlines()[1].split()[5] == shown


@pytest.fixture
def mixed(cluster: FakeCluster) -> FakeCluster:
    """A node of each kind, and one that offers shares and exclusive GPUs."""
    cluster.node("cpu", resources={"cpu": "4"})
    cluster.node("nvidia", resources={"nvidia.com/gpu": "2"})
    cluster.node("share", total=15)
    cluster.node("whole", resources={"aliyun.com/gpu": "4"})
    both = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    return cluster.node("both", resources=both)


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("none", ["cpu"]),
        ("n", ["cpu"]),
        ("exclusive", ["nvidia"]),
        ("e", ["nvidia"]),
        ("topology", ["both", "whole"]),
        ("t", ["both", "whole"]),
        ("share", ["both", "share"]),
        ("s", ["both", "share"]),
    ],
)
def test_nodes_of_one_kind(run: Run, mixed: FakeCluster, mode: str, names: list[str]) -> None:
    """``-m`` takes arena's GPU modes and their letters."""
    rows = run("top", "node", "-m", mode, "--no-headers", on=mixed).out.splitlines()
    assert [row.split()[0] for row in rows] == names


def test_a_kind_that_there_is_not(run: Run, mixed: FakeCluster) -> None:
    """Another mode is a usage error that names those there are."""
    outcome = run("top", "node", "-m", "mig", on=mixed)
    assert (outcome.code, "unknown node type" in outcome.err) == (2, True)


@pytest.mark.parametrize("flags", [(), ("-s",)])
def test_several_names(run: Run, mixed: FakeCluster, flags: tuple[str, ...]) -> None:
    """Several nodes are shown, each once, by name; one that is not there is an error."""
    chosen = ("share", "both", "share")
    out = run("top", "node", *chosen, *flags, "-o", "name", on=mixed).out
    assert out == "node/both\nnode/share\n"
    outcome = run("top", "node", "share", "gone", *flags, on=mixed)
    assert (outcome.code, outcome.err) == (1, 'error: nodes "gone" not found\n')


def test_details_are_shown_again_and_again(
    run: Run, mixed: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``-r`` with ``-d`` and one node prints the block anew after a line with the time."""
    path = tmp_path / "cluster.json"
    path.write_text(mixed.json())
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("gpuinspect.commands.top.time.sleep", pause)
    outcome = run("top", "node", "share", "-d", "-r", "--snapshot", str(path))
    assert outcome.out.count("Total GPUs In Node share:") == 2
    assert sum(line.startswith("-" * 25 + " 20") for line in outcome.out.splitlines()) == 2
    assert pauses == [2.0, 2.0]


def test_refreshing_is_for_one_node(run: Run, mixed: FakeCluster) -> None:
    """Arena's own sentence; without details it prints once, as there."""
    outcome = run("top", "node", "-d", "-r", on=mixed)
    sentence = "error: must specify only one node name when '-r' is enabled\n"
    assert (outcome.code, outcome.err) == (1, sentence)
    assert run("top", "node", "-r", on=mixed).code == 0
