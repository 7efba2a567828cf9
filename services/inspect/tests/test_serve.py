"""``gpushare serve``: from flags to a release, with either Helm, and what is refused."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from fakehelm import FakeHelm
from invoking import Run

from gpuinspect.serving import engine
from gpuinspect.serving.elsewhere import COMMANDS

pytestmark = pytest.mark.slow

MODEL = ("--name", "mnist", "--model-name", "mnist", "--model-path", "/models/mnist")
SHARE = (*MODEL, "--gpumemory", "3")
NAMESPACE = ("-n", "team")


def test_a_release_is_installed(run: Run, helm: FakeHelm) -> None:
    """The chart in the wheel is installed with the values of the flags."""
    outcome = run("serve", "tensorflow", *SHARE, *NAMESPACE)
    assert (outcome.code, outcome.out) == (0, "deployment/mnist-tensorflow-serving created\n")
    assert "kubectl rollout status deployment/mnist-tensorflow-serving -n team" in outcome.err
    assert helm.releases["mnist"] == "gpu-serving"
    assert helm.values == {
        "server": "tensorflow",
        "servingName": "mnist",
        "modelName": "mnist",
        "modelPath": "/models/mnist",
        "gpuMemory": 3,
    }
    assert all(call["args"][-2:] == ["--namespace", "team"] for call in helm.calls)


@pytest.mark.parametrize("flag", ["--enable-istio", "--enableIstio", "--exposeService"])
def test_what_needs_a_mesh_is_refused(run: Run, helm: FakeHelm, flag: str) -> None:
    """The sentence states what to use, and nothing is installed."""
    outcome = run("serve", "tensorflow", *SHARE, flag, *NAMESPACE)
    assert outcome.code == 1
    assert "need Istio" in outcome.err
    assert "Ingress" in outcome.err
    assert helm.calls == []


@pytest.mark.parametrize("command", COMMANDS)
def test_what_arena_serves_through_other_systems_is_refused(run: Run, command: str) -> None:
    """Whatever the flags are, one sentence states what to use, with exit code 1."""
    outcome = run("serve", command, "--name", "m", "--gpus=1", "-n", "team", "more")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"error: serve {command} {COMMANDS[command]}\n"


def test_the_advice_for_updates_keeps_set_values_and_takes_new_defaults(run: Run) -> None:
    """``--reuse-values`` would leave values of a newer chart empty."""
    outcome = run("serve", "update", "tensorflow", "--name", "m")
    assert "--reset-then-reuse-values --set replicas=2" in " ".join(outcome.err.split())
    assert "3.14 or newer" in outcome.err


def test_arenas_other_names_of_servers(run: Run, helm: FakeHelm) -> None:
    """``serve tf`` is ``serve tensorflow``, and ``serve tensorrt`` is ``serve triton``."""
    assert run("serve", "tf", *SHARE, *NAMESPACE).code == 0
    assert helm.values["server"] == "tensorflow"
    store = ("--name", "old", "--model-store", "/models", "--gpumemory", "3")
    assert run("serve", "tensorrt", *store, *NAMESPACE).code == 0
    assert (helm.values["server"], helm.values["modelPath"]) == ("triton", "/models")


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
def test_what_cannot_be_served_is_reported_by_its_flag(
    run: Run, helm: FakeHelm, server: str, flags: tuple[str, ...], words: str
) -> None:
    """A sentence names the flag, exit code 1, and Helm is not queried."""
    outcome = run("serve", server, *flags)
    assert (outcome.code, outcome.out) == (1, "")
    assert words in outcome.err
    assert helm.calls == []


def test_a_name_that_is_taken_is_refused(run: Run, helm: FakeHelm) -> None:
    """Nothing that runs is changed; the way out is reported."""
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


def test_a_refused_installation_leaves_nothing_behind(run: Run, helm: FakeHelm) -> None:
    """Helm keeps the objects before the refused one: the corrected command would be refused."""
    helm.refuse('Deployment.apps "mnist" is invalid')
    outcome = run("serve", "tensorflow", *SHARE, "-l", "a=b c", *NAMESPACE)
    assert (outcome.code, outcome.err) == (1, 'error: Deployment.apps "mnist" is invalid\n')
    assert helm.releases == {"other": "wordpress"}
    assert helm.calls[-1]["args"] == ["uninstall", "mnist", "--namespace", "team"]


def test_a_release_that_another_person_made_meanwhile_stays(run: Run, helm: FakeHelm) -> None:
    """Between the look for the name and the installation: it has not failed."""
    helm.refuse("cannot re-use a name that is still in use", status="deployed")
    outcome = run("serve", "tensorflow", *SHARE, *NAMESPACE)
    assert (outcome.code, "still in use" in outcome.err) == (1, True)
    assert "mnist" in helm.releases


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
    """It gets manifests from helm, and calls no cluster for anything."""
    outcome = run("serve", "tensorflow", *SHARE, "--dry-run", *NAMESPACE)
    assert (outcome.code, outcome.out) == (0, "---\nname: mnist\nchart: gpu-serving\n")
    assert [call["args"][0] for call in helm.calls] == ["template"]


@pytest.mark.usefixtures("no_helm")
def test_the_library_renders_where_there_is_no_helm(run: Run) -> None:
    """The manifests of ``--dry-run`` are objects that kubectl takes, in the namespace requested."""
    outcome = run("serve", "vllm", *SHARE, "--dry-run", *NAMESPACE)
    assert (outcome.code, outcome.err) == (0, "")
    objects = list(yaml.safe_load_all(outcome.out))
    assert [item["kind"] for item in objects] == ["ConfigMap", "Deployment", "Service"]
    assert {item["metadata"]["namespace"] for item in objects} == {"team"}
    (container,) = objects[1]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"aliyun.com/gpu-mem": "3"}
    assert container["args"][0] == "vllm"


@pytest.mark.usefixtures("no_helm")
def test_manifests_are_in_utf_8_whatever_the_locale_is(tmp_path: Path) -> None:
    """As Helm writes them, and as kubectl reads them."""
    values = tmp_path / "values.yaml"
    values.write_text("envs: {GREETING: grüß}", encoding="utf-8")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = "from gpuinspect.commands.main import main; main()"
    words = ["serve", "vllm", *SHARE, "--values", str(values), "--dry-run", *NAMESPACE]
    done = subprocess.run(
        [sys.executable, "-c", command, *words],
        check=True,
        capture_output=True,
        env={**os.environ, **locale},
    )
    assert "grüß".encode() in done.stdout


@pytest.mark.usefixtures("no_helm")
def test_the_library_gets_one_kubeconfig(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a list of files for one path, so several are refused; missing ones do not count."""
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.write_text(yaml.safe_dump({"current-context": "c"}))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    outcome = run("serve", "delete", "mnist", *NAMESPACE)
    assert (outcome.code, outcome.err) == (1, f"error: {engine.SEVERAL_FILES}\n")
    assert run("serve", "vllm", *SHARE, "--dry-run", *NAMESPACE).code == 0
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{first}:")
    requests: list[str] = []
    monkeypatch.setattr(engine, "_output", lambda _, stdin: requests.append(stdin) or "gpu-serving")
    assert run("serve", "delete", "mnist", *NAMESPACE).code == 0
    assert {json.loads(request)["kubeconfig"] for request in requests} == {str(first)}


@pytest.mark.usefixtures("no_helm")
def test_the_charts_refusals_are_sentences(run: Run) -> None:
    """An error that only the chart detects is reported with the chart's message."""
    outcome = run("serve", "vllm", *SHARE, "--cpu", "much", "--dry-run", *NAMESPACE)
    assert outcome.code == 1
    assert "/cpu" in outcome.err


@pytest.mark.usefixtures("no_helm")
def test_without_any_helm_it_names_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither program nor library: one sentence with both ways out, of a package that exists.

    No package index has this command, so an extra of it cannot be installed by name.
    """
    monkeypatch.setitem(sys.modules, "helm_python", None)
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    outcome = run("serve", "vllm", *SHARE, *NAMESPACE)
    assert (outcome.code, outcome.err) == (1, f"error: {engine.NO_HELM}\n")
    assert engine.NO_HELM.endswith(f"pip install {distribution('helm-python-sdk').name}")


@pytest.mark.parametrize("server", ["tensorflow", "triton", "torchserve", "vllm", "custom"])
def test_help_has_an_example_that_can_be_served(run: Run, helm: FakeHelm, server: str) -> None:
    """The example of each command is a command line that works."""
    text = run("serve", server, "-h").out.partition("Example:")[2]
    program, *example = shlex.split(text.replace("\\\n", ""))
    assert program == "gpushare"
    assert run(*example, *NAMESPACE).code == 0
    assert list(helm.releases.values()) == ["wordpress", "gpu-serving"]
