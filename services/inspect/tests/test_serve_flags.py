"""The flags of ``gpushare serve SERVER``: what they make of the chart's values, and their texts."""

import inspect
import sys
from pathlib import Path

import pytest
import yaml
from fakehelm import FakeHelm
from invoking import Run

from gpuinspect.commands.serving.flags import PLACES, request

pytestmark = pytest.mark.slow

SHARE = ("--name", "mnist", "--model-name", "mnist", "--model-path", "/models/mnist")
SHARE += ("--gpumemory", "3")
NAMESPACE = ("-n", "team")


def test_every_flag_reaches_the_chart(run: Run, helm: FakeHelm) -> None:
    """Arena's spellings, old and new, become values of the chart."""
    flags = (
        *("--servingName", "big", "--modelName", "m", "--model-repository", "s3://bucket/m"),
        *("--gpumemory", "8", "--gpucore", "30", "--replicas", "2", "--image", "own:1"),
        *("--grpc-port", "9001", "--http-port", "9000", "--metric-port", "9002"),
        *("-d", "claim:/data", "--data-dir", "/srv/x:/x", "-e", "A=b=c", "-l", "team=a"),
        *("-a", "note=x", "--selector", "zone=1", "--toleration", "gpu=yes:NoSchedule"),
        *("--toleration", "cpu=:NoExecute,Exists", "--toleration", "all"),
        *("--imagePullPolicy", "Always", "--image-pull-secret", "s", "--cpu", "2"),
        *("--memory", "4Gi", "--servingVersion", "7", "--scheduler", "", "--arg=--strict"),
        *("--runtime-class", "nvidia", "--context-memory", "800", "--processes", "2"),
    )
    assert run("serve", "triton", *flags, *NAMESPACE).code == 0
    assert helm.values == {
        "server": "triton",
        "servingName": "big",
        "modelName": "m",
        "modelPath": "s3://bucket/m",
        "gpuMemory": 8,
        "gpuCore": 30,
        "replicas": 2,
        "image": "own:1",
        "port": 9001,
        "restApiPort": 9000,
        "metrics": {"port": 9002},
        "data": [{"claim": "claim", "mountPath": "/data", "readOnly": False}],
        "dataDirs": [{"hostPath": "/srv/x", "mountPath": "/x", "readOnly": False}],
        "envs": {"A": "b=c"},
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "nodeSelector": {"zone": "1"},
        "tolerations": [
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            {"key": "cpu", "operator": "Exists", "effect": "NoExecute"},
            {"operator": "Exists"},
        ],
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "s"}],
        "cpu": "2",
        "memory": "4Gi",
        "servingVersion": "7",
        "schedulerName": "",
        "extraArgs": ["--strict"],
        "runtimeClassName": "nvidia",
        "memoryFraction": {"contextMiB": 800, "processes": 2},
    }


def test_arenas_flags_of_volumes_reach_the_chart(run: Run, helm: FakeHelm, tmp_path: Path) -> None:
    """Claims, empty folders under both names, parts of them, local files and shared memory."""
    (tmp_path / "one.conf").write_text("a: b\n")
    flags = (
        *("--data", "claim:/data", "--data", "other:/other"),
        *("--data-subpath-expr", "claim:$(ARENA_POD_NAME)/in"),
        *("--empty-dir", "cache:/cache", "--temp-dir", "logs:/logs"),
        *("--temp-dir-subpath-expr", "logs:$(ARENA_POD_NAME)", "--share-memory", "2Gi"),
        *("--config-file", f"{tmp_path}/one.conf", "--config-file", f"{tmp_path}/one.conf:/two"),
    )
    assert run("serve", "tensorflow", *SHARE, *flags, *NAMESPACE).code == 0
    found = helm.values
    assert found["data"] == [
        {
            "claim": "claim",
            "mountPath": "/data",
            "readOnly": False,
            "subPathExpr": "$(ARENA_POD_NAME)/in",
        },
        {"claim": "other", "mountPath": "/other", "readOnly": False},
    ]
    assert found["emptyDirs"] == [
        {"name": "cache", "mountPath": "/cache"},
        {"name": "logs", "mountPath": "/logs", "subPathExpr": "$(ARENA_POD_NAME)"},
    ]
    assert found["configFiles"] == [
        {"path": f"{tmp_path}/one.conf", "content": "a: b\n"},
        {"path": "/two", "content": "a: b\n"},
    ]
    assert found["sharedMemory"] == "2Gi"


@pytest.mark.usefixtures("no_helm")
def test_data_is_writable_unless_it_is_mounted_read_only(run: Run) -> None:
    """As in arena; ``:ro`` behind the path keeps the server from changing a model."""
    flags = ("--data", "logs:/logs", "--data", "models:/models:ro", "--data", "more:/more:rw")
    flags += ("--data-dir", "/srv:/srv", "--data-dir", "/srv/a:b:/c:ro")
    out = run("serve", "tensorflow", *SHARE, *flags, "--dry-run", *NAMESPACE).out
    (deployment,) = [each for each in yaml.safe_load_all(out) if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    mounts = {each["mountPath"]: each["readOnly"] for each in container["volumeMounts"][1:]}
    assert mounts == {
        "/logs": False,
        "/models": True,
        "/more": False,
        "/srv": False,
        "/c": True,
    }


def test_arenas_flags_of_upkeep_reach_the_chart(run: Run, helm: FakeHelm) -> None:
    """Probes by action and options, the pace of updates, versions, metrics and the shell."""
    flags = (
        *("--liveness-probe-action", "exec"),
        *("--liveness-probe-action-option", "command=cat '/tmp/a b'"),
        *("--readiness-probe-action", "httpGet", "--readiness-probe-action-option", "path: /ok"),
        *("--readiness-probe-action-option", "port: 8501"),
        *("--readiness-probe-option", "periodSeconds: 3", "--max-surge", "0"),
        *("--max-unavailable", "50%", "--versionPolicy", "latest:2", "--no-allow-metrics"),
        *("--monitoring-config-file", "/m/own.config", "--shell", "bash"),
    )
    assert run("serve", "tensorflow", *SHARE, *flags, *NAMESPACE).code == 0
    found = helm.values
    assert found["probes"] == {
        "liveness": {"exec": {"command": ["cat", "/tmp/a b"]}},
        "readiness": {"httpGet": {"path": "/ok", "port": 8501}, "periodSeconds": 3},
    }
    assert found["strategy"] == {"maxSurge": "0", "maxUnavailable": "50%"}
    assert (found["versionPolicy"], found["shell"]) == ("latest:2", "bash")
    assert found["metrics"] == {"enabled": False}
    assert found["monitoringConfigFile"] == "/m/own.config"


@pytest.mark.usefixtures("no_helm")
def test_the_chart_takes_what_the_flags_make(run: Run, tmp_path: Path) -> None:
    """The real chart renders a release of volumes, probes and pace, with the file as it is here."""
    (tmp_path / "one.conf").write_text("{{ a }}\n")
    flags = (
        *("--empty-dir", "cache:/cache", "--share-memory", "2Gi", "--max-surge", "0"),
        *("--config-file", f"{tmp_path}/one.conf:/one.conf", "--versionPolicy", "specific:3"),
        *("--startup-probe-action", "tcpSocket", "--startup-probe-action-option", "port: http"),
    )
    outcome = run("serve", "tensorflow", *SHARE, *flags, "--dry-run", *NAMESPACE)
    assert (outcome.code, outcome.err) == (0, "")
    config, deployment, _ = yaml.safe_load_all(outcome.out)
    assert config["data"]["file-0"] == "{{ a }}\n"
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["startupProbe"] == {"tcpSocket": {"port": "http"}}


def test_a_file_of_values_stands_below_the_flags(run: Run, helm: FakeHelm, tmp_path: Path) -> None:
    """What no flag specifies comes from the file; flags at their default change nothing."""
    path = tmp_path / "values.yaml"
    file = {"replicas": 4, "image": "file:1", "memoryFraction": {"processes": 2}, "cpu": 1}
    file["labels"] = {"of": "file", "more": "file"}
    path.write_text(yaml.safe_dump(file))
    flags = ("--values", str(path), "--image", "flag:1", "--context-memory", "0", "-l", "more=flag")
    assert run("serve", "tensorflow", *SHARE, *flags, *NAMESPACE).code == 0
    found = helm.values
    assert (found["replicas"], found["image"], found["cpu"]) == (4, "flag:1", 1)
    assert found["memoryFraction"] == {"processes": 2, "contextMiB": 0}
    assert found["labels"] == {"of": "file", "more": "flag"}


def test_a_flag_on_the_command_line_at_its_default_is_above_the_file(
    run: Run, helm: FakeHelm, tmp_path: Path
) -> None:
    """The file's value is removed, so that the chart's default applies, which is the flag's."""
    path = tmp_path / "values.yaml"
    fraction = {"rule": "quotient", "contextMiB": 100, "processes": 4, "modelMiB": 7}
    file = {"replicas": 3, "schedulerName": "other", "memoryFraction": fraction, "cpu": "2"}
    file |= {"metrics": {"enabled": False, "path": "/m"}, "runtimeClassName": "nvidia"}
    path.write_text(yaml.safe_dump(file))
    flags = ("--values", str(path), "--replicas", "1", "--scheduler", "gpushare-scheduler")
    flags += ("--memory-rule", "share", "--context-memory", "600", "--processes", "1")
    flags += ("--allow-metrics", "--runtime-class", "")
    assert run("serve", "tensorflow", *SHARE, *flags, *NAMESPACE).code == 0
    found = helm.values
    assert {"replicas", "schedulerName", "runtimeClassName"} & found.keys() == set()
    assert (found["memoryFraction"], found["cpu"]) == ({"modelMiB": 7}, "2")
    assert found["metrics"] == {"path": "/m"}


def test_every_flag_with_one_value_has_its_place_in_the_chart() -> None:
    """A new flag without a place would lose to the file where it is given at its default."""
    known = inspect.signature(request).parameters
    single = {name for name, each in known.items() if each.default != []}
    assert single - {"server", "name", "values", "extend_command"} == PLACES.keys()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-e", "A"), "--env is 'A': write NAME=VALUE"),
        (("--label", "=a"), "--label is '=a'"),
        (("--data", "claim"), "--data is 'claim': write CLAIM:/PATH/IN/CONTAINER"),
        (("--data-dir", "/a:b"), "--data-dir is '/a:b'"),
        (("--data", "/models:ro"), "write CLAIM:/PATH/IN/CONTAINER"),
        (("--toleration", "a:Never"), "--toleration is 'a:Never'"),
        (("--toleration", "a=b:NoSchedule,Is"), "--toleration is 'a=b:NoSchedule,Is'"),
        (("--empty-dir", "/a"), "--empty-dir is '/a': write NAME:/PATH/IN/CONTAINER"),
        (("--data-subpath-expr", "a"), "write CLAIM:EXPRESSION"),
        (("--data-subpath-expr", "a:b"), "--data-subpath-expr is for a, which is not mounted"),
        (("--config-file", "/none"), "--config-file is '/none'"),
        (("--config-file", "/none:there"), "write FILE or FILE:/PATH/IN/CONTAINER"),
        (("--config-file", sys.executable), "--config-file"),
        (("--liveness-probe-option", "periodSeconds: 3"), "--liveness-probe-action is missing"),
        (("--startup-probe-action", "ping"), "write httpGet, tcpSocket, grpc, exec"),
        (("--startup-probe-action", "grpc"), "--startup-probe-action-option 'port: ...'"),
        (
            ("--liveness-probe-action", "exec", "--liveness-probe-action-option", "cat"),
            "write 'NAME: VALUE' or command=COMMAND",
        ),
        (("--values", "/none"), "--values /none"),
        (("--gpucore", "101"), "--gpucore"),
        (("--memory-rule", "half"), "--memory-rule"),
    ],
)
def test_texts_of_flags_are_checked(
    run: Run, helm: FakeHelm, flags: tuple[str, ...], words: str
) -> None:
    """A text of another form is a wrong command line: exit code 2, and the form."""
    outcome = run("serve", "tensorflow", *SHARE, *flags)
    assert outcome.code == 2
    assert words in " ".join(outcome.err.split())
    assert helm.calls == []


def test_arenas_newer_flags_reach_the_chart(run: Run, helm: FakeHelm) -> None:
    """Devices, secrets, versions and Triton's own, as arena spells them today."""
    flags = (
        *("--name", "big", "--model-path", "/models", "--gpus", "1", "--envs", "A=1"),
        *("--device", "rdma/hca=1", "--env-from-secret", "TOKEN=hub", "--model-version", "3"),
        *("--load-model", "one", "--load-model", "two", "--backend", "vllm", "-l", "team=a"),
        *("--arg=--first", "--extend-command", "--log-verbose=1 --note='two words'"),
    )
    assert run("serve", "triton", *flags, *NAMESPACE).code == 0
    assert helm.values == {
        "server": "triton",
        "servingName": "big",
        "modelPath": "/models",
        "gpuCount": 1,
        "envs": {"A": "1"},
        "devices": {"rdma/hca": "1"},
        "envsFromSecret": {"TOKEN": "hub"},
        "labels": {"team": "a", "modelVersion": "3"},
        "loadModels": ["one", "two"],
        "backend": "vllm",
        "extraArgs": ["--first", "--log-verbose=1", "--note=two words"],
    }


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--device", "rdma/hca"), "write NAME=VALUE"),
        (("--device", "rdma/hca=none"), "write RESOURCE=COUNT"),
        (("--device", "rdma/hca=0"), "write RESOURCE=COUNT"),
        (("--env-from-secret", "TOKEN"), "write NAME=VALUE"),
        (("--backend", "onnx"), "use vllm or trt-llm"),
        (("--extend-command", "--note='"), "No closing quotation"),
    ],
)
def test_texts_of_newer_flags_that_cannot_be_read(
    run: Run, helm: FakeHelm, flags: tuple[str, ...], sentence: str
) -> None:
    """A wrong text is a usage error, and nothing is installed."""
    outcome = run("serve", "triton", *SHARE, *flags, *NAMESPACE)
    assert outcome.code == 2
    assert sentence in " ".join(outcome.err.split())
    assert not helm.calls


def test_a_backend_needs_whole_gpus(run: Run, helm: FakeHelm) -> None:
    """A backend that sizes itself by the model repository would not keep to a share."""
    outcome = run("serve", "triton", *SHARE, "--backend", "vllm", *NAMESPACE)
    assert (outcome.code, "--backend needs --gpus" in outcome.err) == (1, True)
    assert not helm.calls


@pytest.mark.parametrize(
    ("server", "values"),
    [
        ("vllm", "{gpuMemory: 3, modelName: chat, modelPath: /models}"),
        ("tensorflow", "{gpuCount: 1, modelConfigFile: /models.config}"),
        ("custom", "{gpuMemory: 3, image: 'own:1', command: run, memoryFraction: {processes: 2}}"),
        ("triton", "{gpuMemory: 3, command: run, memoryFraction: null}"),
    ],
)
def test_a_file_of_values_may_have_what_is_required(
    run: Run, helm: FakeHelm, tmp_path: Path, server: str, values: str
) -> None:
    """A share, a model and an image count wherever they are set."""
    path = tmp_path / "values.yaml"
    path.write_text(values)
    outcome = run("serve", server, "--name", "x", "--values", str(path), *NAMESPACE)
    assert (outcome.code, outcome.err.startswith("note: to wait for it")) == (0, True)
    assert helm.values == {**yaml.safe_load(values), "server": server, "servingName": "x"}


def test_a_share_in_the_file_and_gpus_on_the_command_line_are_refused(
    run: Run, helm: FakeHelm, tmp_path: Path
) -> None:
    """The chart refuses both too, and names no flag."""
    path = tmp_path / "values.yaml"
    path.write_text("gpuMemory: 3")
    outcome = run("serve", "tensorflow", *SHARE[:6], "--gpus", "1", "--values", str(path))
    assert (outcome.code, "should not be used at the same time" in outcome.err) == (1, True)
    assert not helm.calls


def test_another_device_in_place_of_a_gpu(run: Run, helm: FakeHelm) -> None:
    """A server may run on a device that is none of ours."""
    flags = ("--name", "x", "--image", "own:1", "--device", "amd.com/gpu=1")
    assert run("serve", "custom", *flags, *NAMESPACE).code == 0
    assert helm.values["devices"] == {"amd.com/gpu": "1"}
