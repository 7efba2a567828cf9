"""``gpushare recommend``: sizes from measured memory, from files, snapshots and live plugins."""

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run
from measuredworkloads import NEWEST, history, several, written

from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import GIB
from gpucore.wire.names import Names
from gpuinspect.commands.main import app, command_of
from gpuinspect.commands.options import completion
from gpuinspect.layout.patches import patches
from gpuinspect.queries.recommend import RecommendScope, recommendations, within
from gpuinspect.terminal import ages
from gpukube.testing.plugin_pods import plugin_pod

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
SYSTEM = "/api/v1/namespaces/gpushare/pods"
DAY = 86_400.0


@pytest.fixture
def measured(tmp_path: Path) -> str:
    """A file with a workload for every rule."""
    return str(written(tmp_path / "history.jsonl", several()))


def items(text: str) -> dict[str, dict[str, Any]]:
    """The items of the document by the name of the workload."""
    return {item["name"]: item for item in json.loads(text)["items"]}


def plugin(
    name: str, node: str, scheme: str = "HTTP", namespace: str = "gpushare"
) -> dict[str, Any]:
    """A pod of the device plugin."""
    return plugin_pod(name, node, scheme=scheme, namespace=namespace, port=9445)


def answer_of(node: str, *histories: Any) -> dict[str, Any]:
    """What the plugin of a node answers."""
    found: dict[str, Any] = json.loads(encode_histories(node, histories))
    return found


def test_pods_that_were_counted_and_never_measured_are_no_rows(run: Run, tmp_path: Path) -> None:
    """As of a plugin that cannot tell pods on one GPU apart: a request of 0 would be a lie."""
    counted = UsageHistory(WorkloadKey("default", "Deployment", "web", "c"), pods=3, starts=3)
    path = str(written(tmp_path / "history.jsonl", [counted]))
    outcome = run("recommend", "--history", path)
    assert outcome.code == 1
    assert "no memory was measured" in outcome.err


def test_a_file_is_of_the_default_namespace_unless_all_are_wanted(run: Run, measured: str) -> None:
    """A file has no context: its namespace is default."""
    out = run("recommend", "--history", measured, "--no-headers").out
    assert "cronjob/nightly" not in out
    assert out.startswith("deployment/web")
    everything = run("recommend", "--history", measured, "-A", "--no-headers").out
    assert everything.startswith("research  cronjob/nightly")


@pytest.mark.parametrize("word", ["web", "deploy/web", "deployments.apps/web", "Deployment/web"])
def test_one_workload_is_named_as_kubectl_names_it(run: Run, measured: str, word: str) -> None:
    """With or without its kind."""
    out = run("recommend", word, "--history", measured, "-o", "json").out
    assert [item["recommended"] for item in items(out).values()] == [{"request": 7, "burst": 0}]


def test_a_workload_that_was_not_measured_is_an_error(run: Run, measured: str) -> None:
    """The sentence has the name and the next step."""
    outcome = run("recommend", "sts/web", "--history", measured)
    assert (outcome.code, outcome.out) == (1, "")
    assert "no memory was measured of statefulset web in namespace default" in outcome.err


def test_the_window_leaves_out_what_has_not_run_for_long(run: Run, measured: str) -> None:
    """A workload that ran 20 days ago is in 4 weeks, not in 7 days."""
    week = items(run("recommend", "--history", measured, "-o", "json").out)
    month = items(run("recommend", "--history", measured, "--window=4w", "-o", "json").out)
    assert month.keys() - week.keys() == {"gone"}


def test_margin_and_percentile_change_the_sizes(run: Run, measured: str) -> None:
    """Without a margin and at the highest percentile the sizes are what was measured."""
    flags = ("--margin=0", "--percentile=100", "--history", measured, "-o", "json")
    found = items(run("recommend", *flags).out)
    assert found["web"]["recommended"] == {"request": 6, "burst": 0}
    assert found["burst"]["recommended"] == {"request": 10, "burst": 0}


def test_histories_of_several_nodes_are_added_up(run: Run, tmp_path: Path) -> None:
    """The highest peak of all nodes counts."""
    path = written(tmp_path / "h", [history("web", 2)], [history("web", 9)])
    found = items(run("recommend", "--history", str(path), "-o", "json").out)
    assert (found["web"]["recommended"]["request"], found["web"]["pods"]) == (11, 6)


def test_the_unit_is_that_of_the_nodes(run: Run, cluster: FakeCluster, measured: str) -> None:
    """6 GiB with the margin are 28 units of 256 MiB; the flag is stronger."""
    cluster.node("n", gpus=[Gpu(400)], unit="256MiB")
    out = run("recommend", "web", "--history", measured, "-o", "json", on=cluster).out
    assert items(out)["web"]["recommended"]["request"] == 28
    flags = ("--history", measured, "--memory-unit", "MiB", "-o", "json")
    assert items(run("recommend", "web", *flags, on=cluster).out)["web"]["current"] == {
        "request": 16384,
        "burst": 0,
    }


@pytest.mark.parametrize("flags", [("-o", "patch"), ("--whatif",)])
def test_patches_and_whatif_are_in_the_unit_of_the_nodes(
    run: Run, cluster: FakeCluster, measured: str, flags: tuple[str, ...]
) -> None:
    """7168 of GPUs that count in GiB would be a thousand times too much."""
    cluster.node("n", gpus=[Gpu(40)])
    given = ("recommend", "-A", "--history", measured, "--memory-unit", "MiB", *flags)
    outcome = run(*given, on=cluster)
    assert (outcome.code, outcome.out) == (2, "")
    assert "the nodes count in GiB" in " ".join(outcome.err.split())


def test_the_largest_gpu_is_converted_to_the_unit_that_is_asked_for(
    run: Run, cluster: FakeCluster, measured: str
) -> None:
    """40 units of GiB are no limit of 40 MiB."""
    cluster.node("n", gpus=[Gpu(40)])
    flags = ("--history", measured, "--memory-unit", "MiB", "-o", "json")
    train = items(run("recommend", "train", *flags, on=cluster).out)["train"]
    assert (train["advice"], train["recommended"]["request"]) == ("raise", 12288)


def test_all_memory_of_a_gpu_is_found_where_nodes_count_in_different_units(
    run: Run, cluster: FakeCluster, measured: str
) -> None:
    """16 GiB are one of the GPUs of 16384 MiB."""
    cluster.node("n", gpus=[Gpu(40)]).node("m", gpus=[Gpu(16384)], unit="MiB")
    out = run("recommend", "web", "--history", measured, "-o", "json", on=cluster).out
    assert "it has all memory of a GPU" in items(out)["web"]["text"]


DIFFERENT = "the nodes count GPU memory in different units (GiB, MiB)"


@pytest.mark.parametrize("flags", [("-o", "patch"), ("--whatif",), ("--whatif", "-o", "json")])
@pytest.mark.parametrize("unit", [(), ("--memory-unit", "MiB")], ids=["default", "chosen"])
def test_there_are_no_patches_where_nodes_count_in_different_units(
    run: Run, cluster: FakeCluster, measured: str, flags: tuple[str, ...], unit: tuple[str, ...]
) -> None:
    """A size that is right on one node would be a thousand times too much or little on another."""
    cluster.node("n", gpus=[Gpu(40)]).node("m", gpus=[Gpu(16384)], unit="MiB").node("cpu")
    outcome = run("recommend", "-A", "--history", measured, *unit, *flags, on=cluster)
    assert (outcome.code, outcome.out) == (1, "")
    assert DIFFERENT in " ".join(outcome.err.split())


def test_sizes_name_the_different_units_of_the_nodes(
    run: Run, cluster: FakeCluster, measured: str
) -> None:
    """On stderr beside the table, and in the document."""
    cluster.node("n", gpus=[Gpu(40)]).node("m", gpus=[Gpu(16384)], unit="MiB")
    given = ("recommend", "-A", "--history", measured)
    sentence = f"{DIFFERENT}: all sizes here are in GiB"
    assert sentence in " ".join(run(*given, on=cluster).err.split())
    assert sentence in json.loads(run(*given, "-o", "json", on=cluster).out)["gaps"]


def test_a_node_without_gpus_has_no_other_unit(
    run: Run, cluster: FakeCluster, measured: str
) -> None:
    """It counts nothing."""
    cluster.node("n", gpus=[Gpu(16384)], unit="MiB").node("cpu")
    outcome = run("recommend", "web", "--history", measured, "-o", "json", on=cluster)
    assert json.loads(outcome.out)["gaps"] == []
    assert run("recommend", "-A", "--history", measured, "-o", "patch", on=cluster).code == 0


def test_no_size_is_larger_than_the_largest_gpu(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """A pod with more would never be scheduled."""
    cluster.node("n", gpus=[Gpu(15)])
    path = written(tmp_path / "h", [history("web", 2, 14.5, requested=10)])
    found = items(run("recommend", "--history", str(path), "-o", "json", on=cluster).out)
    assert (found["web"]["recommended"]["request"], found["web"]["capped"]) == (15, True)


def test_histories_among_the_objects_of_a_snapshot_are_read(run: Run, cluster: FakeCluster) -> None:
    """A snapshot with them needs no other file."""
    cluster.node("n", gpus=[Gpu(15)]).add(answer_of("n", history("web", 3)))
    found = items(run("recommend", "-o", "json", on=cluster).out)
    assert found["web"]["recommended"]["request"] == 4


def test_a_snapshot_without_histories_ends_with_the_next_step(
    run: Run, cluster: FakeCluster
) -> None:
    """Nothing was measured yet."""
    outcome = run("recommend", on=cluster.node("n", gpus=[Gpu(15)]))
    assert (outcome.code, outcome.out) == (1, "")
    assert "no memory was measured yet" in outcome.err
    assert "gpushare doctor" in outcome.err


def test_a_namespace_without_workloads_is_stated(run: Run, measured: str) -> None:
    """And what reads the others."""
    outcome = run("recommend", "-n", "none", "--history", measured)
    assert (outcome.code, outcome.out) == (0, "")
    assert "no workload of namespace none used a share in 7d; -A reads" in outcome.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "line 1: no usage history"),
        ('{"kind": "List", "items": []}', "every line must be the answer of a device plugin"),
    ],
)
def test_a_file_of_something_else_is_an_error(
    run: Run, tmp_path: Path, text: str, sentence: str
) -> None:
    """With its path and line."""
    path = tmp_path / "h"
    path.write_text(text)
    outcome = run("recommend", "--history", str(path))
    assert outcome.code == 1
    assert sentence in " ".join(outcome.err.split())


def test_a_file_that_does_not_exist_is_an_error(run: Run, tmp_path: Path) -> None:
    """With its path."""
    outcome = run("recommend", "--history", str(tmp_path / "none"))
    assert outcome.code == 1
    assert "cannot read the histories in" in outcome.err


@pytest.mark.parametrize(
    "flags",
    [
        ("--margin=-1",),
        ("--margin=201",),
        ("--margin=x",),
        ("--window=7",),
        ("--percentile=0",),
        ("--memory-unit=GB",),
        ("/web",),
        ("deploy/",),
        ("--price=2",),
        ("--whatif", "-o", "patch"),
        ("-A", "-n", "team"),
    ],
)
def test_flags_that_make_no_sense_are_a_usage_error(
    run: Run, measured: str, flags: tuple[str, ...]
) -> None:
    """Exit code 2, and nothing on standard output."""
    outcome = run("recommend", *flags, "--history", measured)
    assert (outcome.code, outcome.out) == (2, "")


def test_patches_are_commands_whose_json_sets_request_limit_and_annotation(
    run: Run, measured: str
) -> None:
    """One command a workload that changes, in the order of names."""
    lines = run("recommend", "-A", "--history", measured, "-o", "patch").out.splitlines()
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    targets = [(words[:3], words[3]) for words in commands]
    assert targets == [
        (["kubectl", "patch", "deployment/burst"], "--namespace=default"),
        (["kubectl", "patch", "deployment/web"], "--namespace=default"),
        (["kubectl", "patch", "cronjob/nightly"], "--namespace=research"),
    ]
    amount = {"aliyun.com/gpu-mem": "5"}
    assert json.loads(commands[0][5].removeprefix("--patch="))["spec"]["template"] == {
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": amount, "requests": amount}}]
        },
        "metadata": {"annotations": {"gpushare/memory-limit": "12"}},
    }


def test_what_no_patch_can_change_is_a_comment(run: Run, measured: str) -> None:
    """The template of a Job is final."""
    out = run("recommend", "train", "--history", measured, "-o", "patch").out
    assert out == (
        "# job default/train is not patched; set in its manifest: main aliyun.com/gpu-mem=12\n"
    )


def test_containers_that_were_measured_together_are_changed_by_hand(
    run: Run, tmp_path: Path
) -> None:
    """The histories do not show which of them used the memory."""
    path = str(written(tmp_path / "h", [history("web", 3, container="")]))
    assert run("recommend", "--history", path, "-o", "patch").out == (
        "# deployment default/web is not patched; set in its manifest: all containers"
        " aliyun.com/gpu-mem=4\n"
    )
    assert "(all)" in run("recommend", "--history", path).out


def test_a_whole_gpu_is_never_patched_into_a_share(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """It may be exclusive: the recommendation is shown, the change is left to a person."""
    cluster.node("n", gpus=[Gpu(16)])
    path = str(written(tmp_path / "h", [history("web", 3)]))
    out = run("recommend", "--history", path, "-o", "patch", on=cluster).out
    assert out.startswith("# deployment default/web is not patched (it may have an exclusive GPU)")
    wide = run("recommend", "--history", path, "-o", "wide", on=cluster).out
    assert "keep it if no other pod may use that GPU" in wide


def test_without_nodes_it_is_stated_that_exclusive_gpus_are_not_known(
    run: Run, measured: str
) -> None:
    """Beside the table and in the document."""
    assert "an exclusive GPU looks like a share" in run("recommend", "--history", measured).err


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_names_from_outside_stay_data_in_the_script(kind: str) -> None:
    """A history is data of unknown origin: no name of it begins a command of its own."""
    evil = "x'; touch /tmp/owned\ntouch /tmp/owned #"
    found = recommendations(
        [history(evil, 3, namespace=evil, kind=kind, container=evil)],
        RecommendScope(),
        GIB,
        SizingRules(),
    )
    (line,) = patches(found, Names())
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    assert list(lexer) == []


def test_a_name_that_no_object_has_gets_no_command(run: Run, tmp_path: Path) -> None:
    """The API server does not validate the name of a pod's owner."""
    names = ["x pod/victim", "x\npod/victim", "x\x1b[2J\u202e", "web"]
    path = str(written(tmp_path / "h", [history(name, 3) for name in names]))
    lines = run("recommend", "-A", "--history", path, "-o", "patch").out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if not line.startswith("# deployment default/x")] == [
        line for line in lines if "deployment/web" in line
    ]
    assert run("recommend", "-A", "--history", path, "-o", "name").out == "deployment/web\n"


def test_several_exclusive_gpus_are_not_patched() -> None:
    """Their memory is that of so many GPUs, also where the cluster has larger ones."""
    two = history("two", 10, requested=44, gpus=2)
    rules = SizingRules(gpu_sizes=(22, 80))
    (line,) = patches(recommendations([two], RecommendScope(), GIB, rules), Names())
    assert line.startswith("# deployment default/two is not patched (it may have an exclusive GPU)")


def test_an_unneeded_burst_limit_is_removed() -> None:
    """The annotation is set to null, which deletes it."""
    found = recommendations(
        [history("web", 3, 3, requested=8, limit=20)], RecommendScope(), GIB, SizingRules()
    )
    (line,) = patches(found, Names())
    assert '"gpushare/memory-limit":null' in line


def test_the_plugins_are_read_through_the_api_server(run: Run, tmp_path: Path) -> None:
    """By port and scheme of their pods; a node that does not answer is noted, not dropped."""
    pods = [plugin("p-a", "a"), plugin("p-b", "b", "HTTPS"), plugin("p-c", "c")]
    server = FakeApiServer({NODES: FakeCluster().node("a", gpus=[Gpu(80)]).items, PODS: pods})
    web = history("web", 3)
    server.objects[f"{SYSTEM}/p-a%3A9445/proxy/usage-history"] = answer_of("a", web)
    server.objects[f"{SYSTEM}/https%3Ap-b%3A9445/proxy/usage-history"] = answer_of("b", web)
    with server.serving():
        flags = ("--kubeconfig", str(server.kubeconfig(tmp_path)), "-o", "json")
        outcome = run("recommend", *flags)
    document = json.loads(outcome.out)
    assert [item["pods"] for item in document["items"]] == [6]
    assert document["gaps"][0].startswith("nothing was read of 1 node, such as c: ")


def test_a_pod_that_only_looks_like_a_plugin_is_not_read(run: Run, tmp_path: Path) -> None:
    """Any tenant can create a pod with the labels, and with it histories of other workloads."""
    pods = [plugin("p-a", "a"), plugin("p-b", "b"), plugin("fake", "a", namespace="tenant")]
    server = FakeApiServer({NODES: [], PODS: pods})
    web = history("web", 3)
    server.objects[f"{SYSTEM}/p-a%3A9445/proxy/usage-history"] = answer_of("a", web)
    server.objects[f"{SYSTEM}/p-b%3A9445/proxy/usage-history"] = answer_of("a", history("web", 9))
    with server.serving():
        flags = ("--kubeconfig", str(server.kubeconfig(tmp_path)), "-o", "json")
        document = json.loads(run("recommend", *flags).out)
    assert not [path for path in server.requests if "tenant" in path]
    assert document["items"][0]["recommended"]["request"] == 4
    assert document["gaps"][0].startswith("nothing was read of 1 node, such as b: it reports")


def test_a_node_whose_plugin_does_not_run_is_named(run: Run, tmp_path: Path) -> None:
    """The highest peak may be on it."""
    pending = plugin("p-b", "b")
    pending["status"]["phase"] = "Pending"
    server = FakeApiServer({NODES: [], PODS: [plugin("p-a", "a"), pending]})
    server.objects[f"{SYSTEM}/p-a%3A9445/proxy/usage-history"] = answer_of("a", history("web", 2))
    with server.serving():
        outcome = run("recommend", "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert "nothing was read of 1 node, such as b: its plugin's pod is not running" in (
        " ".join(outcome.err.split())
    )


def test_without_the_right_to_ask_plugins_the_right_is_named(run: Run, tmp_path: Path) -> None:
    """Whether memory was measured is not known then."""
    server = FakeApiServer({NODES: [], PODS: [plugin("p-a", "a")]})
    server.statuses[f"{SYSTEM}/p-a%3A9445/proxy/usage-history"] = 403
    with server.serving():
        outcome = run("recommend", "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert outcome.code == 1
    words = " ".join(outcome.err.split())
    assert (
        "no memory was read: the right to get pods/proxy in namespace gpushare is missing" in words
    )
    assert "no memory was measured" not in words


def test_without_rights_on_nodes_the_unit_is_gib(run: Run, tmp_path: Path) -> None:
    """The pods of the plugins are enough."""
    server = FakeApiServer({NODES: [], PODS: [plugin("p-a", "a")]})
    server.statuses[NODES] = 403
    path = f"{SYSTEM}/p-a%3A9445/proxy/usage-history"
    server.objects[path] = answer_of("a", history("web", 3))
    with server.serving():
        outcome = run("recommend", "--kubeconfig", str(server.kubeconfig(tmp_path)), "-o", "json")
    assert json.loads(outcome.out)["unit"] == "GiB"


def test_completion_offers_workloads(tmp_path: Path) -> None:
    """Deployments and StatefulSets, as KIND/NAME."""
    apps = "/apis/apps/v1/namespaces/default"
    named = {
        f"{apps}/deployments": [{"metadata": {"name": "web"}}, {"metadata": {"name": "api"}}],
        f"{apps}/statefulsets": [{"metadata": {"name": "vllm"}}],
    }
    with FakeApiServer(named).serving() as server:
        line = ["recommend", "--kubeconfig", str(server.kubeconfig(tmp_path))]
        command = command_of(app)
        assert completion.candidates(command, [*line, "deployment/w"]) == ["deployment/web"]
        assert completion.candidates(command, [*line, "s"]) == ["statefulset/vllm"]


def test_help_has_examples(run: Run) -> None:
    """Each on a line of its own."""
    out = run("recommend", "--help").out
    assert "\n    gpushare recommend -A --whatif " in out


def test_documents_are_of_the_schema(run: Run, measured: str) -> None:
    """The reasons and advice are words of the rules."""
    out = run("recommend", "-A", "--history", measured, "-o", "json").out
    found = msgspec.json.decode(out.encode(), type=dict[str, Any])
    assert {item["reason"] for item in found["items"]} == {
        "measured",
        "too-short",
        "takes-all",
        "out-of-memory",
    }


def seen(name: str, days_ago: float = 0, *, kind: str = "Deployment", team: str = "a") -> Any:
    """A history whose last sample is of so many days before a time that is fixed."""
    return UsageHistory(WorkloadKey(team, kind, name, "main"), last_seen=1.7e9 - days_ago * DAY)


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        (RecommendScope(), ["web", "web", "job", "old"]),
        (RecommendScope(days=6.9), ["web", "web", "job"]),
        (RecommendScope(days=8), ["web", "web", "job", "old", "older"]),
        (RecommendScope(namespace="a"), ["web", "job", "old"]),
        (RecommendScope(namespace="b", kind="job", name="web"), []),
        (RecommendScope(kind="deployment", name="web"), ["web", "web"]),
        (RecommendScope(namespace="b", name="web"), ["web"]),
        (RecommendScope(kind="job", name="job"), ["job"]),
        (RecommendScope(kind="deployment", name="job"), []),
    ],
)
def test_the_scope_is_of_namespace_name_kind_and_days(
    scope: RecommendScope, names: list[str]
) -> None:
    """The days count back from the newest sample, its bound included."""
    histories = [
        seen("web"),
        seen("web", 1, team="b"),
        seen("job", 2, kind="Job"),
        seen("old", 7),
        seen("older", 8),
    ]
    assert [each.key.name for each in within(histories, scope)] == names


def test_a_node_whose_clock_is_ahead_hides_no_other() -> None:
    """The days count back from now where the newest sample is later."""
    histories = [seen("bad", -30), seen("web"), seen("old", 7), seen("older", 7.1)]
    scope = RecommendScope(now=1.7e9)
    assert [each.key.name for each in within(histories, scope)] == ["bad", "web", "old"]


def test_the_window_of_the_command_ends_now(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One history of the future does not leave out the others."""
    monkeypatch.setattr(ages, "now", lambda: datetime.fromtimestamp(NEWEST, UTC))
    path = written(tmp_path / "h", [history("web", 2)], [history("far", 2, ago=-30)])
    found = items(run("recommend", "--history", str(path), "-o", "json").out)
    assert found.keys() == {"web", "far"}


def test_a_peak_of_a_node_that_the_workload_left_weeks_ago_is_no_peak(
    run: Run, tmp_path: Path
) -> None:
    """The plugin of that node keeps its history as it was."""
    path = written(tmp_path / "h", [history("web", 15, ago=21)], [history("web", 2)])
    found = items(run("recommend", "--history", str(path), "-o", "json").out)
    assert found["web"]["peakBytes"] == 2 << 30


def test_two_nodes_with_one_sample_each_have_not_measured_for_the_week_between_them(
    run: Run, tmp_path: Path
) -> None:
    """A time without samples counts as one day, between nodes as on one node."""
    nodes = ([history("web", 2, ago=ago, days=0, starts=1)] for ago in (6.9, 0))
    path = written(tmp_path / "h", *nodes)
    found = items(run("recommend", "--history", str(path), "-o", "json").out)
    assert (found["web"]["days"], found["web"]["reason"]) == (1, "too-short")


def test_the_most_freed_memory_comes_first_and_then_the_name() -> None:
    """Whatever the order in which the nodes were read."""
    sizes = (("c", 8), ("a", 8), ("b", 16))
    histories = [history(name, 1, 2, requested=size) for name, size in sizes]
    rules = SizingRules(gpu_sizes=(16,))
    found = recommendations(histories, RecommendScope(), GIB, rules)
    assert [each.key.name for each in found] == ["b", "a", "c"]
    assert found[0].freed > found[1].freed == found[2].freed > 0
