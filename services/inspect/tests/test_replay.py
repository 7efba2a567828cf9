"""``gpushare replay``: files in, figures out, sentences for files that are none."""

import json
from pathlib import Path

import pytest
import typer
from claimobjects import (
    allocated,
    claim,
    device,
    device_class,
    request,
    resource_slice,
    template,
    uses,
)
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from typer.testing import CliRunner, Result

from gpuinspect.cluster.collect import RESOURCE_API
from gpuinspect.commands.replay import replay

pytestmark = pytest.mark.slow

NODES = """sn,cpu_milli,memory_mib,gpu,model
a,64000,262144,2,P100
b,96000,393216,8,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p0,1000,1024,1,460,
p1,1000,1024,1,1000,P100|G2
p2,1000,1024,0,0,
"""


def run(tmp_path: Path, *args: str, nodes: str = NODES, pods: str = PODS) -> Result:
    """Call the command on two files of this content."""
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "pods.csv").write_text(pods)
    app = typer.Typer()
    app.command()(replay)
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    return CliRunner().invoke(app, [*files, *args])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--load", "0.5"), "need --week"),
        (("--gangs", "0.5"), "need --week"),
        (("--defragment",), "need --week"),
        (("--week", "--arrivals", "2"), "leave out --arrivals"),
        (("--week", "--draw", "once"), "leave out --arrivals"),
        (("--arrivals", "nan"), "is not a finite number"),
        (("--arrivals", "inf"), "is not in the range"),
        (("--arrivals", "0"), "is not in the range"),
        (("--week", "--load", "inf"), "is not in the range"),
        (("--week", "--gangs", "nan"), "is not a finite number"),
    ],
)
def test_an_option_that_has_no_meaning_is_an_error(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    """It would change nothing, or the replay would never end."""
    outcome = run(tmp_path, "--policy", "binpack", *flags)
    assert outcome.exit_code == 2
    assert message in " ".join(outcome.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "policy",
    [
        *("binpack", "spread", "fragmentation", "random"),
        *("claims-plain", "claims-binpack", "claims-fragmentation-packed"),
    ],
)
def test_figures_add_up(tmp_path: Path, policy: str) -> None:
    """Placed and failed make what was requested; placed and unallocated make all GPUs."""
    result = run(tmp_path, "--policy", policy, "-o", "json")
    figures = json.loads(result.stdout)
    assert result.exit_code == 0
    assert figures["gpus"] == 10
    assert figures["requested"] >= 13
    assert figures["placed"] + figures["failed"] == pytest.approx(figures["requested"])
    assert figures["placed"] + figures["unallocated_gpus"] == pytest.approx(10)
    assert figures["seconds"] >= 0


def test_a_seed_repeats_the_draw(tmp_path: Path) -> None:
    """The same seed gives the same figures, another seed another draw."""
    answers = []
    for seed in ("1", "1", "2"):
        result = run(tmp_path, "--policy", "random", "--seed", seed, "-o", "json")
        figures = json.loads(result.stdout)
        answers.append((figures["requested"], figures["requested_pods"]))
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


def test_the_table_names_every_figure(tmp_path: Path) -> None:
    """Without -o the figures stand one a line, with their names."""
    result = run(tmp_path, "--policy", "binpack", "--arrivals", "0.5")
    assert result.exit_code == 0
    assert "UNALLOCATED_GPUS" in result.stdout
    assert "GPUS              10\n" in result.stdout


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        (PODS.replace("460", "many"), "pods.csv:2: column gpu_milli holds 'many'"),
        (PODS.replace("num_gpu", "gpus"), "there is no column 'num_gpu'"),
        (PODS.replace("460", "1460"), "requests 1460 thousandths"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\nq,1,1,0,0\n", "no pod of this trace"),
        ("", "no pod of this trace"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, pods: str, words: str) -> None:
    """A file that is no trace ends the command with a sentence that names the place."""
    result = run(tmp_path, "--policy", "binpack", pods=pods)
    assert result.exit_code == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (NODES + "a,64000,262144,2,P100\n", "2 nodes have the name a"),
        (NODES.splitlines()[0], "no node of this trace has GPUs"),
    ],
)
def test_nodes_that_are_no_cluster_are_refused(tmp_path: Path, nodes: str, words: str) -> None:
    """Two nodes of one name would count as one, and without GPUs nothing is placed."""
    result = run(tmp_path, "--policy", "binpack", nodes=nodes)
    assert result.exit_code == 1
    assert words in " ".join(result.output.split())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is a sentence, not a traceback."""
    app = typer.Typer()
    app.command()(replay)
    missing = str(tmp_path / "none.csv")
    args = ["--nodes", missing, "--pods", missing, "--policy", "spread"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 1
    assert "none.csv" in result.stderr


def test_every_format_has_the_figures(tmp_path: Path) -> None:
    """As in all commands with ``-o``."""
    line = ("--policy", "binpack")
    assert '"gpus": 10' in run(tmp_path, *line, "-o", "json").stdout
    assert "policy: binpack\n" in run(tmp_path, *line, "-o", "yaml").stdout
    assert run(tmp_path, *line, "-o", "name").stdout == "policy/binpack\n"


def test_every_pod_once_over_several_seeds(tmp_path: Path) -> None:
    """One line for each seed and the mean; the document has the same runs."""
    args = ("--policy", "fragmentation", "--draw", "once", "--seed", "4", "--seeds", "3")
    lines = run(tmp_path, *args).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["SEED", "4", "5", "6", "mean"]
    document = json.loads(run(tmp_path, *args, "-o", "json").stdout)
    left = [one["unallocated_gpus"] for one in document["runs"]]
    assert document["mean_unallocated_gpus"] == pytest.approx(sum(left) / 3)


def cluster(tmp_path: Path) -> Path:
    """Two nodes with GPUs of 10 units, a pod without GPUs that takes half of a node's CPU."""
    source = FakeCluster()
    for name in ("a", "b"):
        source.node(name, gpus=[Gpu(10)] * 2, resources={"cpu": "8", "memory": "64Gi"})
    source.pod("agent", node="a", limits={"cpu": "4"})
    source.pod("half", 5, node="a", index=0, limits={"cpu": "2"})
    source.pod("done", 5, phase="Succeeded", limits={"cpu": "2"})
    source.pod("whole", limits={"aliyun.com/gpu": "1", "cpu": "1", "memory": "1Gi"})
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": source.items}))
    return path


def invoked(*args: str) -> Result:
    """The command with no files of a trace."""
    app = typer.Typer()
    app.command()(replay)
    return CliRunner().invoke(app, args)


def test_a_cluster_is_replayed_from_its_own_pods(tmp_path: Path) -> None:
    """All pods with GPUs arrive once, ended ones too; what other pods request is taken."""
    given = ("--from-cluster", "--snapshot", str(cluster(tmp_path)), "--draw", "once")
    result = invoked(*given, "--policy", "binpack", "--arrivals", "0.5", "-o", "json")
    figures = json.loads(result.stdout)
    assert (figures["gpus"], figures["requested"], figures["failed_pods"]) == (4, 2.0, 0)


def with_claims() -> FakeCluster:
    """A node with two GPUs of 15 GiB and 8 CPUs that are offered as claims, and pods with these."""
    source = FakeCluster().node("n", resources={"cpu": "8", "memory": "64Gi"})
    source.add(resource_slice("n", [device(0, 15), device(1, 15)])).add(device_class())
    source.add(template("third", request("5Gi"))).add(template("whole", request()))
    source.add(claim("own", allocated("n", 0, "3Gi", "60"), spec=request("3Gi", "60")))
    source.pod("made", spec=uses(template_name="third"))
    source.pod("named", node="n", limits={"cpu": "6"}, spec=uses("own"))
    source.pod("exclusive", spec=uses(template_name="whole"))
    return source.pod("unknown", node="n", limits={"cpu": "2"}, spec=uses("missing"))


WITH_CLAIMS = ("--from-cluster", "--draw", "once", "--policy", "binpack", "--arrivals", "0.967")


def test_pods_with_claims_are_replayed_by_what_these_request(tmp_path: Path) -> None:
    """By template or claim, memory or compute, whichever is more of a GPU; once, as all pods."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": with_claims().items}))
    result = invoked(*WITH_CLAIMS, "--snapshot", str(path), "-o", "json")
    figures = json.loads(result.stdout)
    assert (figures["requested_pods"], figures["gpus"]) == (3, 2)
    assert figures["requested"] == pytest.approx(0.334 + 0.6 + 1.0)
    assert figures["failed_pods"] == 0


def test_a_live_cluster_is_asked_for_templates_and_classes(tmp_path: Path) -> None:
    """Without them, pods whose claims are made from templates would be missing."""
    source = with_claims()
    kinds = {
        "/api/v1/nodes": "Node",
        "/api/v1/pods": "Pod",
        f"{RESOURCE_API}/resourceslices": "ResourceSlice",
        f"{RESOURCE_API}/resourceclaims": "ResourceClaim",
        f"{RESOURCE_API}/resourceclaimtemplates": "ResourceClaimTemplate",
        f"{RESOURCE_API}/deviceclasses": "DeviceClass",
    }
    lists = {
        path: [one for one in source.items if one["kind"] == kind] for path, kind in kinds.items()
    }
    with FakeApiServer(lists).serving() as server:
        config = server.kubeconfig(tmp_path)
        result = invoked(*WITH_CLAIMS, "--kubeconfig", str(config), "-o", "json")
    assert json.loads(result.stdout)["requested_pods"] == 3


@pytest.mark.parametrize("args", [(), ("--from-cluster", "--nodes", "x.csv"), ("--pods", "x.csv")])
def test_a_trace_is_two_files_or_the_cluster(args: tuple[str, ...]) -> None:
    """Anything else is refused with the flags to give."""
    result = invoked("--policy", "binpack", *args)
    assert result.exit_code == 2
    assert "--from-cluster" in result.output


TIMED = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time
p0,1000,1024,1,460,,0,50000
p1,1000,1024,1,1000,P100|G2,100,90000
p2,1000,1024,0,0,,5,10
"""


def test_a_week_has_waiting_times_by_class(tmp_path: Path) -> None:
    """Of a few jobs on few GPUs; the same for the same seed."""
    args = ("--policy", "spread", "--week", "--load", "0.8", "--every", "2", "--gangs", "0")
    runs = [run(tmp_path, *args, "-o", "json", pods=TIMED) for _ in range(2)]
    first, second = (json.loads(one.stdout) for one in runs)
    assert (first["gpus"], first["gpu_hours"]) == (2, 2 * 6 * 24)
    assert set(first["waiting"]) == {"cpu", "share", "one-gpu"}
    assert 0 < first["allocated_gpu_hours"] <= first["gpu_hours"]
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    table = run(tmp_path, *args, "--seeds", "2", pods=TIMED).stdout
    assert table.count("CLASS") == 2
    assert run(tmp_path, *args, "-o", "name", pods=TIMED).stdout == "policy/spread\n"


def test_pods_without_times_take_those_of_another_file(tmp_path: Path) -> None:
    """Without that file the missing column is named."""
    timed = tmp_path / "timed.csv"
    timed.write_text(TIMED)
    refused = run(tmp_path, "--policy", "binpack", "--week")
    assert refused.exit_code == 1
    assert "deletion_time" in refused.output
    given = ("--policy", "binpack", "--week", "--lifetimes", str(timed), "-o", "json")
    assert json.loads(run(tmp_path, *given).stdout)["jobs"] > 0


def test_lifetimes_of_no_pods_are_refused(tmp_path: Path) -> None:
    """A file with only its header has no lifetime to choose."""
    empty = tmp_path / "lifetimes.csv"
    empty.write_text(TIMED.splitlines()[0])
    result = run(tmp_path, "--policy", "binpack", "--week", "--lifetimes", str(empty))
    assert result.exit_code == 1
    assert "the trace has no pods" in " ".join(result.output.split())


def test_a_pod_that_is_deleted_before_it_is_created_is_refused(tmp_path: Path) -> None:
    """With its name."""
    result = run(tmp_path, "--policy", "binpack", "--week", pods=TIMED.replace("50000", "-1"))
    assert result.exit_code == 1
    assert "p0" in result.output


def test_a_week_from_the_cluster_says_that_its_history_is_short(tmp_path: Path) -> None:
    """Pods that ended have their lifetime; one that runs counts as if it ended now."""
    source = FakeCluster().node("a", gpus=[Gpu(10)] * 2)
    ended = {"state": {"terminated": {"finishedAt": "2026-01-01T06:00:00Z"}}}
    for name, created, phase in (("run", "03", "Running"), ("end", "00", "Succeeded")):
        source.pod(
            name,
            5,
            node="a",
            index=0,
            phase=phase,
            metadata={"creationTimestamp": f"2026-01-01T{created}:00:00Z"},
        )
    source.items[-1]["status"]["containerStatuses"] = [ended]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": source.items}))
    given = ("--from-cluster", "--snapshot", str(path), "--policy", "binpack", "--week")
    result = invoked(*given, "-o", "json")
    assert "history is short: 0.2 days" in result.stderr
    assert "the end of 1 of 2 pods is known" in result.stderr.replace("\n", " ")
    figures = json.loads(result.stdout)
    mean_hours = (6 + 3) / 2 * 0.5
    assert figures["jobs"] == pytest.approx(0.9 * 2 * 7 * 24 / mean_hours, rel=0.1)


@pytest.mark.parametrize("flags", [(), ("--week",)])
def test_a_cluster_whose_pods_fit_no_usual_gpu_is_refused(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """A share of the one large GPU is more than all of a GPU of the most frequent size."""
    source = FakeCluster().node("a", gpus=[Gpu(10)]).node("b", gpus=[Gpu(10)])
    source.node("large", gpus=[Gpu(80)]).pod("p", 40, node="large")
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": source.items}))
    result = invoked("--from-cluster", "--snapshot", str(path), "--policy", "binpack", *flags)
    assert result.exit_code == 1
    assert "larger share than the most frequent GPU has" in " ".join(result.output.split())


def test_a_cluster_where_nothing_started_has_no_week(tmp_path: Path) -> None:
    """The reason is a sentence."""
    path = tmp_path / "cluster.json"
    source = FakeCluster().node("a", gpus=[Gpu(10)]).pod("p", 5, phase="Pending")
    path.write_text(json.dumps({"kind": "List", "items": source.items}))
    result = invoked("--from-cluster", "--snapshot", str(path), "--policy", "binpack", "--week")
    assert result.exit_code == 1
    assert "no pods with GPUs have started" in result.output
