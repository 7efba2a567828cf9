"""TAB for names: contexts of the kubeconfig, and objects of the live cluster."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer
from invoking import Run

from gpuinspect.commands import main
from gpuinspect.commands.main import app, command_of
from gpuinspect.commands.options import completion

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[FakeApiServer]:
    """Two nodes, three namespaces, and pods in one of them."""
    cluster.node("gpu-a", total=15).node("gpu-b", total=15).pod("web-0", 3).pod("web-1", 3)
    first, second, *pods = cluster.items
    names = [{"metadata": {"name": name}} for name in ("default", "team-a", "team-b")]
    lists = {"/api/v1/nodes": [first, second], NAMESPACES: names}
    lists |= {f"{NAMESPACES}/default/pods": pods, f"{NAMESPACES}/team-a/pods": pods[:1]}
    for path, name in (("apps/v1/{}/deployments", "web"), ("batch/v1/{}/jobs", "train")):
        named = {"name": name, "labels": {"servingName": "chat"}}
        lists[f"/apis/{path.format('namespaces/default')}"] = [{"metadata": named}]
    with FakeApiServer(lists).serving() as serving:
        yield serving


def candidates(server: FakeApiServer, folder: Path, *words: str) -> list[str]:
    """What TAB offers for the last word."""
    flag = ["--kubeconfig", str(server.kubeconfig(folder))]
    at = 2 if words[0] in {"explain", "serve", "topology", "top"} else 1
    line = [*words[:at], *flag, *words[at:]]
    return completion.candidates(command_of(app), line)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["pending", "-n", "team"], ["team-a", "team-b"]),
        (["usage", "--context", "h"], ["here"]),
        (["inspect", "gpu-"], ["gpu-a", "gpu-b"]),
        (["explain", "pod", "web"], ["web-0", "web-1"]),
        (["explain", "pod", "-n", "default", "web-1"], ["web-1"]),
        (["explain", "pod", "team-a/"], ["team-a/web-0"]),
        (["explain", "deploy", "w"], ["web"]),
        (["explain", "job", "default/"], ["default/train"]),
        (["recommend", "depl"], ["deployment/web"]),
        (["recommend", "deploy/"], ["deploy/web"]),
        (["recommend", "sts/"], []),
        (["serve", "get", ""], ["chat"]),
        (["serve", "delete", "x"], []),
        (["topology", "show", "gpu-"], ["gpu-a", "gpu-b"]),
        (["verify", "--only", "share,me"], ["share,memory"]),
        (["usage", "--by", "mod"], ["model"]),
        (["top", "node", "--gpu-mode", "sh"], ["share"]),
        (["serve", "list", "--type", "v"], ["vllm"]),
    ],
)
def test_names(server: FakeApiServer, tmp_path: Path, words: list[str], names: list[str]) -> None:
    """Names that begin as the word does are offered."""
    assert candidates(server, tmp_path, *words) == names


def test_no_cluster_offers_nothing(server: FakeApiServer, tmp_path: Path) -> None:
    """Without rights TAB stays silent."""
    server.statuses[NAMESPACES] = 403
    assert candidates(server, tmp_path, "pending", "-n", "team") == []


def test_a_damaged_kubeconfig_offers_nothing(server: FakeApiServer, tmp_path: Path) -> None:
    """A file whose contexts are no list ends no completion in a traceback."""
    path = server.kubeconfig(tmp_path)
    path.write_text("contexts: 5")
    words = ["usage", "--kubeconfig", str(path), "--context", "h"]
    assert completion.candidates(command_of(app), words) == []


def test_workloads_after_a_slash(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``explain deploy/TAB`` offers the names of the kind, as it was typed."""
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
    root = command_of(app)
    assert completion.candidates(root, ["explain", "deploy/"]) == ["deploy/web"]
    assert completion.candidates(root, ["explain", "job/x"]) == []
    assert completion.candidates(root, ["explain", "dep"]) == ["deployment"]


def test_commands_are_offered_without_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """TAB after ``gpushare`` imports no command, and knows the options of the program."""

    def fail(*_: object) -> None:
        pytest.fail("a command was imported")

    monkeypatch.setattr(main, "_built", fail)
    root = command_of(app)
    assert completion.candidates(root, ["un"]) == ["uninstall-scheduler"]
    assert set(completion.candidates(root, [""])) >= set(main.COMMANDS)
    assert "--version" in completion.candidates(root, ["--v"])


def test_two_seconds_are_for_all_that_a_name_needs(tmp_path: Path) -> None:
    """A credential plugin that hangs does not hold the shell: nothing is offered, in time."""
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,"
        " contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}],"
        " users: [{name: u, user: {exec: {command: sleep, args: ['20'],"
        " apiVersion: client.authentication.k8s.io/v1}}}]}"
    )
    code = (
        "import sys; from gpuinspect.commands.options import answers; answers.SECONDS = 0.2;"
        " from gpuinspect.commands.main import main; sys.argv[0] = 'gpushare'; main()"
    )
    line = "gpushare recommend "
    words = {"COMP_LINE": line, "_GPUSHARE_BREAKS": " ", "_GPUSHARE_COMPLETE": "complete_bash"}
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words, "KUBECONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert (outcome.returncode, outcome.stdout.strip(), outcome.stderr) == (0, "", "")


def test_impersonation(run: Run, server: FakeApiServer, tmp_path: Path) -> None:
    """``--as`` is sent as kubectl sends it; what cannot be in a header is a usage error."""
    server.lists["/api/v1/pods"] = []
    flag = f"--kubeconfig={server.kubeconfig(tmp_path)}"
    assert run("pending", flag, "--as", "anna").code == 0
    assert set(server.impersonated) == {"anna"}
    assert run("pending", flag, "--as", "an\nna").code == 2
    server.statuses |= {"/api/v1/pods": 403, "/api/v1/namespaces/default/pods": 403}
    assert "user me as anna" in run("pending", flag, "--as", "anna").err
