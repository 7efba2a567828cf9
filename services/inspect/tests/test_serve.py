"""``gpushare serve``: from flags to a release, with either Helm, and what is refused."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakehelm import FakeHelm
from invoking import Run

from gpuinspect.serving import engine

MODEL = ("--name", "mnist", "--model-name", "mnist", "--model-path", "/models/mnist")
SHARE = (*MODEL, "--gpumemory", "3")
NAMESPACE = ("-n", "team")


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHelm:
    """A helm on PATH that knows one release, of another chart."""
    fake = FakeHelm(tmp_path, other="wordpress")
    monkeypatch.setenv("PATH", fake.path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return fake


@pytest.fixture
def no_helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No helm on PATH, so that the library is used, and no kubeconfig."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


def values(helm: FakeHelm) -> dict[str, Any]:
    """Of the release that was installed last."""
    return dict([call for call in helm.calls if call["args"][0] == "install"][-1]["values"])


def test_a_release_is_installed(run: Run, helm: FakeHelm) -> None:
    """The chart that travels with the command is installed with what the flags say."""
    outcome = run("serve", "tensorflow", *SHARE, *NAMESPACE)
    assert (outcome.code, outcome.out) == (0, "deployment/mnist-tensorflow-serving created\n")
    assert "kubectl rollout status deployment/mnist-tensorflow-serving -n team" in outcome.err
    assert helm.releases["mnist"] == "gpu-serving"
    assert values(helm) == {
        "server": "tensorflow",
        "servingName": "mnist",
        "modelName": "mnist",
        "modelPath": "/models/mnist",
        "gpuMemory": 3,
    }
    assert all(call["args"][-2:] == ["--namespace", "team"] for call in helm.calls)


def test_every_flag_reaches_the_chart(run: Run, helm: FakeHelm) -> None:
    """Arena's spellings, old and new, become values of the chart."""
    flags = (
        *("--servingName", "big", "--modelName", "m", "--model-repository", "s3://bucket/m"),
        *("--gpumemory", "8", "--gpucore", "30", "--replicas", "2", "--image", "own:1"),
        *("--grpc-port", "9001", "--http-port", "9000", "--metric-port", "9002"),
        *("-d", "claim:/data", "--data-dir", "/srv/x:/x", "-e", "A=b=c", "-l", "team=a"),
        *("-a", "note=x", "--selector", "zone=1", "--toleration", "gpu=yes:NoSchedule"),
        *("--imagePullPolicy", "Always", "--image-pull-secret", "s", "--cpu", "2"),
        *("--memory", "4Gi", "--servingVersion", "7", "--scheduler", "", "--arg=--strict"),
        *("--runtime-class", "nvidia", "--context-memory", "800", "--processes", "2"),
    )
    assert run("serve", "triton", *flags, *NAMESPACE).code == 0
    assert values(helm) == {
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
        "data": [{"claim": "claim", "mountPath": "/data"}],
        "dataDirs": [{"hostPath": "/srv/x", "mountPath": "/x"}],
        "envs": {"A": "b=c"},
        "labels": {"team": "a"},
        "annotations": {"note": "x"},
        "nodeSelector": {"zone": "1"},
        "tolerations": [
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
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


def test_a_file_of_values_stands_below_the_flags(run: Run, helm: FakeHelm, tmp_path: Path) -> None:
    """What no flag says comes from the file; flags that are left at their default say nothing."""
    path = tmp_path / "values.yaml"
    file = {"replicas": 4, "image": "file:1", "memoryFraction": {"processes": 2}, "cpu": 1}
    path.write_text(yaml.safe_dump(file))
    flags = ("--values", str(path), "--image", "flag:1", "--context-memory", "0")
    assert run("serve", "tensorflow", *SHARE, *flags, *NAMESPACE).code == 0
    found = values(helm)
    assert (found["replicas"], found["image"], found["cpu"]) == (4, "flag:1", 1)
    assert found["memoryFraction"] == {"processes": 2, "contextMiB": 0}


def test_arenas_short_name_of_tensorflow(run: Run, helm: FakeHelm) -> None:
    """``serve tf`` is ``serve tensorflow``."""
    assert run("serve", "tf", *SHARE, *NAMESPACE).code == 0
    assert values(helm)["server"] == "tensorflow"


def test_both_modes_are_refused_as_arena_refuses_them(run: Run) -> None:
    """``--gpus`` with ``--gpumemory``: arena's sentence and exit code."""
    outcome = run("serve", "tensorflow", *SHARE, "--gpus", "1")
    assert (outcome.code, outcome.out) == (1, "")
    sentence = (
        "gpucount and gpumemory should not be used at the same time.You can only choose one mode"
    )
    assert outcome.err == f"error: {sentence}\n"


@pytest.mark.parametrize(
    ("server", "flags", "words"),
    [
        ("tensorflow", MODEL, "give --gpumemory"),
        ("tensorflow", (*MODEL, "--gpus", "1", "--gpucore", "5"), "--gpucore is a part"),
        ("tensorflow", ("--name", "Mnist", "--gpus", "1"), "--name is 'Mnist'"),
        ("tensorflow", ("--name", "m" * 44, "--gpus", "1"), "at most 43"),
        ("tensorflow", ("--name", "m", "--gpus", "1"), "--model-path is missing"),
        ("vllm", ("--name", "m", "--gpus", "1", "--model-path", "x"), "--model-name is missing"),
        ("custom", ("--name", "m", "--gpus", "1"), "--image is missing"),
        ("custom", ("--name", "m", "--gpumemory", "1", "--image", "a"), "--command is missing"),
    ],
)
def test_what_cannot_be_served_is_told_by_its_flag(
    run: Run, helm: FakeHelm, server: str, flags: tuple[str, ...], words: str
) -> None:
    """A sentence names the flag, exit code 1, and Helm is not asked."""
    outcome = run("serve", server, *flags)
    assert (outcome.code, outcome.out) == (1, "")
    assert words in outcome.err
    assert helm.calls == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-e", "A"), "--env is 'A': write NAME=VALUE"),
        (("--label", "=a"), "--label is '=a'"),
        (("--data", "claim"), "--data is 'claim': write CLAIM:/PATH/IN/CONTAINER"),
        (("--data-dir", "/a:b"), "--data-dir is '/a:b'"),
        (("--toleration", "a:Never"), "--toleration is 'a:Never'"),
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


def test_a_name_that_is_taken_is_refused(run: Run, helm: FakeHelm) -> None:
    """Nothing that runs is changed; the way out is said."""
    outcome = run("serve", "tensorflow", "--name", "other", *SHARE[2:], *NAMESPACE)
    assert outcome.code == 1
    assert "there is a release other in namespace team already" in outcome.err
    assert helm.releases == {"other": "wordpress"}


def test_delete_ends_what_was_served(run: Run, helm: FakeHelm) -> None:
    """The release goes; a second time there is nothing to delete."""
    run("serve", "tensorflow", *SHARE, *NAMESPACE)
    assert run("serve", "delete", "mnist", *NAMESPACE).out == "mnist deleted\n"
    assert helm.releases == {"other": "wordpress"}
    outcome = run("serve", "delete", "mnist", *NAMESPACE)
    assert (outcome.code, outcome.err) == (1, "error: mnist is not served in namespace team\n")


def test_delete_leaves_other_charts_alone(run: Run, helm: FakeHelm) -> None:
    """A release that this command has not made is not its to remove."""
    outcome = run("serve", "delete", "other", *NAMESPACE)
    assert outcome.code == 1
    assert "of chart wordpress" in outcome.err
    assert helm.releases == {"other": "wordpress"}


def test_helms_own_words_are_passed_on(run: Run, helm: FakeHelm) -> None:
    """A failure of Helm ends with its sentence and exit code 1."""
    helm.complain("Kubernetes cluster unreachable")
    outcome = run("serve", "tensorflow", *SHARE, *NAMESPACE)
    assert (outcome.code, outcome.err) == (1, "error: Kubernetes cluster unreachable\n")


def test_the_clusters_flags_reach_helm(run: Run, helm: FakeHelm, tmp_path: Path) -> None:
    """Kubeconfig and context are Helm's, and the namespace is that of the context."""
    path = tmp_path / "config"
    context = {"name": "far", "context": {"cluster": "c", "user": "u", "namespace": "ours"}}
    near = {"name": "near", "context": {"cluster": "c", "user": "u"}}
    config = {
        "contexts": [near, context],
        "current-context": "near",
        "clusters": [{"name": "c", "cluster": {"server": "https://far"}}],
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    flags = ("--kubeconfig", str(path), "--context", "far")
    assert run("serve", "tensorflow", *SHARE, *flags).code == 0
    where = ["--namespace", "ours", "--kubeconfig", str(path), "--kube-context", "far"]
    assert helm.calls[-1]["args"][-6:] == where
    assert run("serve", "delete", "mnist", "--kubeconfig", str(path)).code == 0
    assert helm.calls[-1]["args"][-4:-2] == ["--namespace", "default"]


def test_dry_run_changes_nothing(run: Run, helm: FakeHelm) -> None:
    """It asks helm for manifests, and no cluster for anything."""
    outcome = run("serve", "tensorflow", *SHARE, "--dry-run", *NAMESPACE)
    assert (outcome.code, outcome.out) == (0, "---\nname: mnist\nchart: gpu-serving\n")
    assert [call["args"][0] for call in helm.calls] == ["template"]


@pytest.mark.usefixtures("no_helm")
def test_the_library_renders_where_there_is_no_helm(run: Run) -> None:
    """The manifests of ``--dry-run`` are objects that kubectl takes, in the namespace asked for."""
    outcome = run("serve", "vllm", *SHARE, "--dry-run", *NAMESPACE)
    assert (outcome.code, outcome.err) == (0, "")
    objects = list(yaml.safe_load_all(outcome.out))
    assert [item["kind"] for item in objects] == ["ConfigMap", "Deployment", "Service"]
    assert {item["metadata"]["namespace"] for item in objects} == {"team"}
    (container,) = objects[1]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"aliyun.com/gpu-mem": "3"}
    assert container["args"][0] == "vllm"


@pytest.mark.usefixtures("no_helm")
def test_the_charts_refusals_are_sentences(run: Run) -> None:
    """What only the chart knows to be wrong is told in its words."""
    outcome = run("serve", "vllm", *SHARE, "--cpu", "much", "--dry-run", *NAMESPACE)
    assert outcome.code == 1
    assert "/cpu" in outcome.err


@pytest.mark.usefixtures("no_helm")
def test_without_any_helm_it_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither program nor library: one sentence with both ways out."""
    monkeypatch.setitem(sys.modules, "helm_python", None)
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    outcome = run("serve", "vllm", *SHARE, *NAMESPACE)
    assert (outcome.code, outcome.err) == (1, f"error: {engine.NO_HELM}\n")


@pytest.mark.parametrize("server", ["tensorflow", "triton", "torchserve", "vllm", "custom"])
def test_help_has_an_example_that_can_be_served(run: Run, helm: FakeHelm, server: str) -> None:
    """The example of each command is a command line that works."""
    text = run("serve", server, "-h").out.partition("Example:")[2]
    program, *example = shlex.split(text.replace("\\\n", ""))
    assert program == "gpushare"
    assert run(*example, *NAMESPACE).code == 0
    assert list(helm.releases.values()) == ["wordpress", "gpu-serving"]
