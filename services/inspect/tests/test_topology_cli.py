"""``gpushare topology``: plans from files, drawings of nodes, and sentences for what cannot be."""

import json
from pathlib import Path

import pytest
from claimobjects import API, allocated, claim, device, resource_slice
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from typer.testing import CliRunner, Result

from gpucore.testing.machines import MACHINES
from gpucore.wire.node.matrices import encode_annotation
from gpuinspect.commands.main import app as gpushare
from gpuinspect.commands.topology import app

LINKS = {f"{a}-{b}": names for (a, b), names in MACHINES["dgx1-volta"].matrix.links.items()}
VOLTA = json.dumps({"gpus": 8, "links": LINKS})
GUIDE = encode_annotation(MACHINES["v100-guide"].matrix)


def run(*args: str, stdin: str | None = None) -> Result:
    """Call the command with these arguments."""
    return CliRunner().invoke(app, list(args), input=stdin)


def plan(tmp_path: Path, *args: str, machine: str = VOLTA) -> Result:
    """Call ``plan`` on a file of this content."""
    path = tmp_path / "matrix.json"
    path.write_text(machine)
    return run("plan", "--matrix", str(path), *args)


PLANS = {
    "best pair": (VOLTA, ["--free", "0,2,4,5", "--count", "2"], ([4, 5], 150, 280)),
    "spelling of 2019": (
        VOLTA,
        ["--free", "0,2,4,5", "--count", "2", "--policy", "best_effort"],
        ([4, 5], 150, 280),
    ),
    "required": (VOLTA, ["--count", "4", "--require", "4"], ([4, 5, 6, 7], 1120, 2240)),
    "annotation": (GUIDE, ["--free", "0,5,6,7", "--count", "2"], ([0, 6], 200, 300)),
    "simple": (
        VOLTA,
        ["--free", "0,2,4", "--count", "3", "--policy", "simple"],
        ([0, 2, 4], 350, 350),
    ),
    "simple with a required GPU": (
        VOLTA,
        ["--count", "2", "--require", "4", "--policy", "simple"],
        ([4, 0], 210, 920),
    ),
    "static": (
        VOLTA,
        ["--count", "2", "--policy", "static", "--node-type", "dgx1-volta"],
        ([0, 3], 230, 920),
    ),
    "bandwidth": (VOLTA, ["--count", "2", "--policy", "bandwidth"], ([2, 3], 250, 920)),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_as_json(tmp_path: Path, name: str) -> None:
    """With -o json the answer has the keys gpus, score and partition_score."""
    machine, args, (gpus, score, total) = PLANS[name]
    result = plan(tmp_path, *args, "-o", "json", machine=machine)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"gpus": gpus, "score": score, "partition_score": total}
    assert result.stderr == ""


IMPOSSIBLE = {
    "too few": (["--free", "0,2", "--count", "3"], "3 GPUs requested but 2 free"),
    "none free": (["--free", "", "--count", "1"], "1 GPU requested but none free"),
    "required is taken": (
        ["--free", "0,2", "--count", "2", "--require", "4"],
        "GPU 4 is required but not free",
    ),
    "no such GPU": (["--free", "8", "--count", "1"], "the machine has no GPU 8"),
    "no such size": (
        ["--count", "3", "--policy", "static", "--node-type", "dgx1-volta"],
        "no configured set of 3 GPUs is free on 'dgx1-volta'",
    ),
}


@pytest.mark.parametrize("output", ["table", "json", "yaml", "name"])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_is_one_sentence(tmp_path: Path, name: str, output: str) -> None:
    """Impossible plans end with code 1, one sentence on stderr and nothing on stdout."""
    args, sentence = IMPOSSIBLE[name]
    result = plan(tmp_path, *args, "-o", output)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {sentence}\n"


def test_people_get_the_links_of_the_group(tmp_path: Path) -> None:
    """Without -o the chosen GPUs are drawn, and a sentence has what the others can still make."""
    result = plan(tmp_path, "--count", "2")
    assert result.exit_code == 0
    assert result.stdout == (
        "      GPU0 GPU3\n"
        "GPU0     X  NV2\n"
        "GPU3   NV2    X\n"
        "\n"
        "best-effort takes GPUs 0, 3: score 230; the other free GPUs score 690, 920 in total.\n"
    )


def test_scripts_get_the_list_alone(tmp_path: Path) -> None:
    """-o name prints the comma list that annotations use."""
    assert plan(tmp_path, "--count", "2", "-o", "name").stdout == "0,3\n"


def test_a_matrix_may_come_from_standard_input() -> None:
    """A dash reads the matrix from a pipe."""
    result = run("plan", "--matrix", "-", "--count", "1", "-o", "json", stdin=GUIDE)
    assert json.loads(result.stdout)["gpus"] == [0]


def test_odd_links_are_noted_beside_the_answer(tmp_path: Path) -> None:
    """An unknown link is reported on stderr and counts as none."""
    machine = '{"gpus": 2, "links": {"0-1": ["WARP"]}}'
    result = plan(tmp_path, "--count", "2", "-o", "json", machine=machine)
    assert json.loads(result.stdout)["score"] == 0
    assert result.stderr == "note: 0-1: 'WARP' is an unknown kind of link and is ignored\n"


def test_configured_sets_from_a_file(tmp_path: Path) -> None:
    """--static-config adds an operator's own node types."""
    sets = tmp_path / "static.json"
    sets.write_text('{"mine": {"4": [[4, 5, 6, 7]]}}')
    flags = ["--policy", "static", "--node-type", "mine", "--static-config", str(sets)]
    result = plan(tmp_path, "--count", "3", *flags, "-o", "json")
    assert json.loads(result.stdout)["gpus"] == [4, 5, 6]
    sets.write_text("{")
    broken = plan(tmp_path, "--count", "3", *flags)
    assert (broken.exit_code, broken.stdout) == (1, "")
    assert "invalid configuration of static sets" in broken.stderr


def test_files_that_are_no_matrix(tmp_path: Path) -> None:
    """A file of anything else, or none at all, ends with code 1 and a sentence."""
    broken = plan(tmp_path, "--count", "1", machine="GPU0 GPU1")
    absent = run("plan", "--matrix", str(tmp_path / "none.json"), "--count", "1")
    assert (broken.exit_code, broken.stdout) == (absent.exit_code, absent.stdout) == (1, "")
    assert "no matrix" in broken.stderr
    assert absent.stderr.startswith("error: cannot read")


@pytest.mark.parametrize("text", ["0;1", "a", "-1", "0,,1", "9999"])
def test_lists_that_are_none_are_mistakes_of_the_command_line(tmp_path: Path, text: str) -> None:
    """A malformed list ends with code 2, as every wrong command line does."""
    assert plan(tmp_path, "--count", "1", "--free", text).exit_code == 2


def show(cluster: FakeCluster, node: str) -> Result:
    """Call ``show`` on a snapshot of this cluster."""
    return run("show", node, "--snapshot", "-", stdin=cluster.json())


def topology_node(cluster: FakeCluster, name: str, **annotations: str) -> FakeCluster:
    """A node of the 2019 topology plugin with 8 GPUs."""
    cluster.node(name, resources={"aliyun.com/gpu": "8"}, labels={"gputopology": "true"})
    cluster.items[-1]["metadata"]["annotations"] = annotations
    return cluster


def test_a_node_is_drawn_as_the_original_drew_it(cluster: FakeCluster) -> None:
    """Figures, node type, links with used GPUs as X, and the legend."""
    topology_node(cluster, "gpu-0", GPU_TOPOLOGY=GUIDE, NODE_TYPE="ecs.sccgn6.24xlarge")
    cluster.pod(
        "train",
        node="gpu-0",
        limits={"aliyun.com/gpu": "2"},
        annotations={"ALIYUN_COM_GPU_GROUP": "0,3", "ALIYUN_COM_GPU_ASSIGNED": "true"},
    )
    result = show(cluster, "gpu-0")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:8] == [
        "node name: gpu-0",
        "all gpu: 8",
        "used gpu: 2",
        "node type: ecs.sccgn6.24xlarge",
        "gpu topology:",
        "      GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7",
        "GPU0     X    X    X    X    X    X    X    X",
        "GPU1     X    X  NV2    X  SYS  SYS  SYS  NV2",
    ]
    assert lines[14] == "-" * 40
    assert "  NV#  = NVLinks, and how many" in lines


def test_gpus_in_use_are_counted_as_inspect_gpu_counts_them(cluster: FakeCluster) -> None:
    """A GPU that the node has lost is not one of them, and those on unknown GPUs are."""
    topology_node(cluster, "gpu-0", GPU_TOPOLOGY=GUIDE)
    for name, gpus, texts in (("lost", "2", {"ALIYUN_COM_GPU_GROUP": "0,9"}), ("stray", "3", {})):
        cluster.pod(name, node="gpu-0", limits={"aliyun.com/gpu": gpus}, annotations=texts)
    assert (
        "used gpu: 4\n"
        in CliRunner()
        .invoke(gpushare, ["gpu", "-d", "--snapshot", "-"], input=cluster.json())
        .stdout
    )
    assert "used gpu: 4\n" in show(cluster, "gpu-0").stdout


@pytest.mark.slow
def test_gpus_that_claims_hold_are_in_use(cluster: FakeCluster, tmp_path: Path) -> None:
    """The live cluster is read as far as `kubectl inspect gpu` reads it."""
    cluster.node("n1", gpus=[Gpu(15), Gpu(15)], labels={"gputopology": "true"}, resources={})
    lists = {
        "/api/v1/nodes": cluster.items,
        "/api/v1/pods": [],
        f"/apis/{API}/resourceslices": [resource_slice("n1", [device(0, 15), device(1, 15)])],
        f"/apis/{API}/resourceclaims": [claim("held", allocated("n1", 1), pods=["p"])],
    }
    server = FakeApiServer(lists)
    with server.serving():
        flag = f"--kubeconfig={server.kubeconfig(tmp_path)}"
        result = CliRunner().invoke(gpushare, ["topology", "show", "n1", flag])
        assert "used gpu: 1\n" in result.stdout
        server.statuses[f"/apis/{API}/resourceclaims"] = 403
        result = CliRunner().invoke(gpushare, ["topology", "show", "n1", flag])
    assert "so what claims hold is missing" in result.stderr


def test_a_node_that_is_not_there(cluster: FakeCluster) -> None:
    """An unknown node ends with code 1 and kubectl's sentence."""
    result = show(cluster, "gpu-9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == 'error: nodes "gpu-9" not found\n'


def test_a_node_without_gpus(cluster: FakeCluster) -> None:
    """A node that publishes no GPUs cannot be drawn."""
    cluster.node("cpu-0", resources={})
    result = show(cluster, "cpu-0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: node cpu-0 publishes no GPUs\n"


def test_a_broken_annotation_is_noted(cluster: FakeCluster) -> None:
    """The GPUs are drawn without links, and stderr reports why."""
    topology_node(cluster, "gpu-0", GPU_TOPOLOGY="{")
    result = show(cluster, "gpu-0")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: no GPU_TOPOLOGY")
    assert "GPU0     X  N-A" in result.stdout
