"""``gpushare serve list`` and ``get``: what is served, by whom ever, and where its pods sit."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import arenaobjects as arena
import msgspec
import pytest
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.serving.objects import Selector
from gpuinspect.serving.selection import type_label

pytestmark = pytest.mark.slow

MEM, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
FORMS = Path(__file__).parent / "golden" / "forms"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SERVICES = "/api/v1/namespaces/default/services"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """Two served models: one on a share with a pod that runs, one on NVIDIA's GPUs with none."""
    share = {MEM: 16000, CORE: 20}
    one = arena.deployment("tensorflow", "mnist", share)
    one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][MEM] = "16k"
    two = arena.deployment("custom", "own", {"nvidia.com/gpu": 2}, replicas=2)
    two["status"] = {}
    placed = {"ALIYUN_COM_GPU_MEM_IDX": "1"}
    pod = arena.pod("tensorflow", "mnist", share, node="n1", annotations=placed)
    lists = {
        DEPLOYMENTS: [two, one],
        SERVICES: [arena.service("tensorflow", "mnist")],
        PODS: [pod],
        "/apis/apps/v1/deployments": [two, one],
        "/api/v1/services": [],
        "/api/v1/pods": [pod],
    }
    with FakeApiServer(lists, page=10).serving() as serving:
        yield serving


@pytest.fixture
def flag(server: FakeApiServer, tmp_path: Path) -> str:
    """The flag that points to the server."""
    return f"--kubeconfig={server.kubeconfig(tmp_path)}"


def test_list_has_arenas_columns(run: Run, server: FakeApiServer, flag: str) -> None:
    """One line a served model, sorted; amounts are those of a pod; selected by arena's labels."""
    outcome = run("serve", "list", flag)
    assert (outcome.code, outcome.err) == (0, "")
    head, mnist, own = [line.split() for line in outcome.out.splitlines()]
    columns = "NAME TYPE VERSION DESIRED AVAILABLE ADDRESS PORTS GPU GPU_MEMORY"
    assert head == columns.split()
    version, ports = arena.VERSION, "grpc-serving:8500,http-serving:8501"
    assert mnist[:8] == ["mnist", "tf-serving", version, "1", "1", "10.0.0.7", ports, "0"]
    assert mnist[8:] == ["16000", "(20%", "of", "compute)"]
    assert own == ["own", "custom-serving", version, "2", "0", "N/A", "N/A", "2", "N/A"]
    assert all("labelSelector=servingName" in request for request in server.requests)


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name"])
def test_list_prints_its_golden_file(run: Run, flag: str, form: str) -> None:
    """To the byte in every form; UPDATE_GOLDEN=1 writes the files anew."""
    printed = run("serve", "list", flag, "-o", form).out
    path = FORMS / f"serve-list.{form}"
    if "UPDATE_GOLDEN" in os.environ:
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")


def test_list_of_all_namespaces_names_them(run: Run, flag: str) -> None:
    """``-A`` puts the namespace first; ``--no-headers`` leaves rows only."""
    rows = [
        line.split() for line in run("serve", "list", "-A", "--no-headers", flag).out.splitlines()
    ]
    assert [row[:2] for row in rows] == [["default", "mnist"], ["default", "own"]]


def test_exclusive_gpus_of_gpushare_are_shown(run: Run, server: FakeApiServer, flag: str) -> None:
    """As those of NVIDIA's device plugin."""
    server.lists[DEPLOYMENTS] = [arena.deployment("custom", "own", {"aliyun.com/gpu": 2})]
    assert run("serve", "list", flag, "--no-headers").out.split()[-2:] == ["2", "N/A"]


def test_list_of_all_namespaces_is_sorted_by_namespace(
    run: Run, server: FakeApiServer, flag: str
) -> None:
    """By name within each."""
    found = [arena.deployment("custom", name, {MEM: 1}) for name in ("a", "z", "b")]
    for each, namespace in zip(found, ("red", "blue", "blue"), strict=True):
        each["metadata"]["namespace"] = namespace
    server.lists["/apis/apps/v1/deployments"] = found
    printed = run("serve", "list", "-A", "--no-headers", flag).out
    rows = [line.split()[:2] for line in printed.splitlines()]
    assert rows == [["blue", "b"], ["blue", "z"], ["red", "a"]]


def test_an_empty_list_is_a_note(run: Run, server: FakeApiServer, flag: str) -> None:
    """Nothing served is no error, and nothing on standard output."""
    server.lists[DEPLOYMENTS] = []
    outcome = run("serve", "list", flag)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == "nothing is served in namespace default; -A reads all namespaces\n"


def test_get_lists_the_pods_and_their_gpus(run: Run, server: FakeApiServer, flag: str) -> None:
    """The address, then each pod with its node and what it holds of which GPU."""
    server.lists[DEPLOYMENTS] = server.lists[DEPLOYMENTS][1:]
    outcome = run("serve", "get", "mnist", flag)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["Name:", "mnist"] in lines
    assert ["Address:", "10.0.0.7"] in lines
    assert lines[-1][1:] == ["Running", "1/1", "2", "n1", "gpu1(16000)"]
    (query,) = [request for request in server.requests if request.startswith(PODS)]
    assert "app%3Dtensorflow-serving%2Crelease%3Dmnist-" in query


def test_a_pod_that_was_not_started_has_none_of_its_containers_ready(
    run: Run, server: FakeApiServer, flag: str
) -> None:
    """Its status names no container yet."""
    server.lists[DEPLOYMENTS] = server.lists[DEPLOYMENTS][1:]
    server.lists[PODS][0]["status"] = {"phase": "Pending"}
    last = run("serve", "get", "mnist", flag).out.splitlines()[-1].split()
    assert last[1:4] == ["Pending", "0/1", "0"]


def test_get_for_programs(run: Run, server: FakeApiServer, flag: str) -> None:
    """The document has the same, by name; ``-o name`` gives pods to xargs."""
    server.lists[DEPLOYMENTS] = server.lists[DEPLOYMENTS][1:]
    document = json.loads(run("serve", "get", "mnist", flag, "-o", "json").out)
    assert (document["apiVersion"], document["kind"]) == ("gpushare/v1", "ServingList")
    (item,) = document["items"]
    assert (item["type"], item["gpuMemory"], item["gpuCore"]) == ("tf-serving", 16000, 20)
    (pod,) = item["instances"]
    assert (pod["gpus"], pod["restarts"]) == ({"1": 16000}, 2)
    assert run("serve", "get", "mnist", flag, "-o", "name").out == f"pod/{pod['name']}\n"


def test_get_takes_what_list_prints(run: Run, server: FakeApiServer, flag: str) -> None:
    """A line of ``serve list -o name`` is the model server of that Deployment."""
    for line in run("serve", "list", flag, "-o", "name").out.split():
        document = json.loads(run("serve", "get", line, flag, "-o", "json").out)
        assert [f"deployment/{item['deployment']}" for item in document["items"]] == [line]


def test_get_of_nothing_is_an_error(run: Run, server: FakeApiServer, flag: str) -> None:
    """A name that is not served ends with exit code 1."""
    server.lists[DEPLOYMENTS] = []
    outcome = run("serve", "get", "none", flag)
    assert (outcome.code, outcome.err) == (1, "error: none is not served in namespace default\n")


def test_a_refusal_of_the_cluster_is_a_sentence(run: Run, server: FakeApiServer, flag: str) -> None:
    """Without the right to list Deployments, the path and the server's words are reported."""
    server.statuses[DEPLOYMENTS] = 403
    outcome = run("serve", "list", flag)
    assert outcome.code == 1
    assert outcome.err.startswith(
        f"error: a right is missing: GET {DEPLOYMENTS}: 403 the fake refuses\n  where: server "
    )


def test_pods_that_wait_for_their_turn_are_shown(run: Run, tmp_path: Path) -> None:
    """Another server starts on the GPU first; kubelet has the plugin's words."""
    one, runs = (arena.deployment("tensorflow", name, {MEM: 3}) for name in ("mnist", "runs"))
    one["status"] = {}
    pod = arena.pod("tensorflow", "mnist", {MEM: 3}, node="n1")
    message = "rpc failed: waits for its turn: pod default/x is starting on the same GPU"
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": waiting}]}
    lists = {DEPLOYMENTS: [one, runs], SERVICES: [], PODS: [pod]}
    with FakeApiServer(lists, page=10).serving() as fake:
        flag = f"--kubeconfig={fake.kubeconfig(tmp_path)}"
        assert "0 (1 waiting for their turn)" in run("serve", "list", flag).out
        shown = run("serve", "get", "mnist", flag).out
        assert "WaitsForTurn" in shown
        document = json.loads(run("serve", "list", flag, "-o", "json").out)
    assert document["items"][0]["waiting"] == 1


@pytest.mark.parametrize("words", ["list", "get mnist"])
def test_reading_for_somebody_else(run: Run, server: FakeApiServer, flag: str, words: str) -> None:
    """``--as`` is sent with every request, and named where a right is missing."""
    line = ("serve", *words.split(), flag, "--as", "anna")
    assert run(*line).code == 0
    assert set(server.impersonated) == {"anna"}
    server.statuses[DEPLOYMENTS] = 403
    outcome = run(*line)
    first, where, step = outcome.err.splitlines()
    assert (outcome.code, "a right is missing" in first) == (1, True)
    assert "user me as anna" in where
    assert step.startswith("  next: ")


@pytest.mark.parametrize("kind", ["tf", "Tensorflow", "tf-serving"])
def test_list_shows_one_type(run: Run, flag: str, kind: str) -> None:
    """By arena's names of the type, and by its label; another type has none."""
    out = run("serve", "list", flag, "-T", kind, "--no-headers").out
    assert [line.split()[0] for line in out.splitlines()] == ["mnist"]
    outcome = run("serve", "list", flag, "--type", "triton")
    assert outcome.err.startswith("nothing of type triton is served in namespace default")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("TensorRT", "trt-serving"),
        ("trt", "trt-serving"),
        ("kfserving", "kf-serving"),
        ("Tensorflow-serving", "tf-serving"),
        ("seldon-serving", "seldon-serving"),
    ],
)
def test_each_of_arenas_names_of_a_type_is_one_label(name: str, label: str) -> None:
    """Arena shortens three of them in the label."""
    assert type_label(name) == label


def test_list_takes_arenas_older_flag_of_all_namespaces(run: Run, flag: str) -> None:
    """It is not in the help, and does what ``-A`` does."""
    out = run("serve", "list", flag, "--allNamespaces").out
    assert out == run("serve", "list", flag, "-A").out
    assert "--allNamespaces" not in run("serve", "list", "-h").out


def test_get_shows_one_type_and_version(run: Run, server: FakeApiServer, flag: str) -> None:
    """Of several versions under one name, those that match."""
    server.lists[DEPLOYMENTS] = server.lists[DEPLOYMENTS][1:]
    one = ("serve", "get", "mnist", flag, "-o", "json", "-T", "tensorflow")
    (item,) = json.loads(run(*one, "-v", arena.VERSION).out)["items"]
    assert (item["name"], item["version"]) == ("mnist", arena.VERSION)
    for other in (("--version", "1"), ("--type", "custom")):
        outcome = run("serve", "get", "mnist", flag, *other)
        sentence = f"error: mnist is not served in namespace default with {' '.join(other)}\n"
        assert (outcome.code, outcome.err) == (1, sentence)


def test_a_pod_waits_for_its_turn_in_its_own_namespace_alone(run: Run, tmp_path: Path) -> None:
    """The same model is served by the same labels in two namespaces."""
    one, other = (arena.deployment("tensorflow", "mnist", {MEM: 3}) for _ in range(2))
    other["metadata"]["namespace"] = "team"
    one["status"] = other["status"] = {}
    pod = arena.pod("tensorflow", "mnist", {MEM: 3}, node="n1")
    message = "rpc failed: waits for its turn: pod default/x is starting on the same GPU"
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [{"state": waiting}]}
    lists = {"/apis/apps/v1/deployments": [one, other], "/api/v1/services": []}
    with FakeApiServer({**lists, "/api/v1/pods": [pod]}, page=10).serving() as fake:
        flag = f"--kubeconfig={fake.kubeconfig(tmp_path)}"
        found = json.loads(run("serve", "list", "-A", flag, "-o", "json").out)["items"]
    assert {each["namespace"]: each["waiting"] for each in found} == {"default": 1, "team": 0}


def test_one_namespace_or_all(run: Run, flag: str) -> None:
    """As in all commands, both flags together are refused."""
    outcome = run("serve", "list", flag, "-A", "-n", "default")
    assert (outcome.code, "cannot be combined" in outcome.err) == (2, True)


EXPRESSIONS = [
    {"key": "app", "operator": "In", "values": ["tensorflow-serving", "other"]},
    {"key": "tier", "operator": "NotIn", "values": ["test"]},
    {"key": "servingName", "operator": "Exists"},
    {"key": "canary", "operator": "DoesNotExist"},
]


def test_get_selects_pods_as_the_deployment_does(
    run: Run, server: FakeApiServer, flag: str
) -> None:
    """A selector may have expressions alone; without it, all pods of the namespace would be its."""
    one = server.lists[DEPLOYMENTS][1]
    one["spec"]["selector"] = {"matchExpressions": EXPRESSIONS}
    server.lists[DEPLOYMENTS] = [one]
    assert run("serve", "get", "mnist", flag).code == 0
    (target,) = [request for request in server.requests if request.startswith(PODS)]
    (query,) = parse_qs(urlsplit(target).query)["labelSelector"]
    assert query == "app in (tensorflow-serving,other),tier notin (test),servingName,!canary"


@pytest.mark.parametrize(
    ("labels", "own"),
    [
        ({}, True),
        ({"tier": "prod"}, True),
        ({"tier": "test"}, False),
        ({"canary": "true"}, False),
        ({"app": "stranger"}, False),
    ],
)
def test_expressions_select_pods_as_in_the_api(labels: dict[str, str], *, own: bool) -> None:
    """Each operator as the API server reads it."""
    selector = msgspec.convert({"matchExpressions": EXPRESSIONS}, Selector)
    assert selector.matches({"app": "other", "servingName": "mnist"} | labels) is own
