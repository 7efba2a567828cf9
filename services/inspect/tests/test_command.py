"""The command itself: help, version, completion, snapshots, and how quick it is."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from drawncluster import Card, FakeCluster
from invoking import Run

from gpuinspect.commands.main import COMMANDS, app, command_of
from gpuinspect.commands.options import completion


def test_help_lists_every_command(run: Run) -> None:
    """``--help`` names all commands with a line each."""
    out = run("--help").out
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run: Run, name: str) -> None:
    """Each command can be imported and says what it does."""
    outcome = run(name, "-h")
    assert (outcome.code, f"Usage: gpushare {name}" in outcome.out) == (0, True)


def test_unknown_commands_are_usage_errors(run: Run) -> None:
    """A mistyped command ends with exit code 2."""
    assert run("inspekt").code == 2


@pytest.mark.parametrize(
    ("typed", "meant"), [("inspct", "inspect"), ("pendign", "pending"), ("doktor", "doctor")]
)
def test_a_mistyped_command_is_answered_with_the_near_one(run: Run, typed: str, meant: str) -> None:
    """The command that was probably meant is named."""
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in run(typed).err


def test_help_imports_nothing_heavy() -> None:
    """Listing the commands loads neither a Kubernetes client nor any decoder."""
    code = (
        "import sys; from gpuinspect.commands.main import app\n"
        "try: app(['--help'], prog_name='gpushare')\n"
        "except SystemExit: pass\n"
        "heavy = {'kubernetes', 'msgspec', 'yaml', 'rich', 'gpucore'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_version(run: Run) -> None:
    """The version is one line."""
    assert run("version").out.startswith("gpushare 0.")
    assert run("--version").out == run("version").out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    """Each shell has a script that calls back through the variable of the environment."""
    assert "_GPUSHARE_COMPLETE" in run("completion", shell).out


def test_completion_of_commands_and_flags() -> None:
    """Candidates are the commands, then the flags of the chosen one."""
    root = command_of(app)
    assert completion.candidates(root, ["wh"]) == ["whatif"]
    assert "--snapshot" in completion.candidates(root, ["inspect", "--s"])
    assert completion.candidates(root, ["inspect", "-o", "y"]) == ["yaml"]


def test_kubectl_completion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TAB after kubectl gets candidates, one a line, and the directive for no file names."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-inspect-gpushare", "--det"])
    completion.kubectl_inspect_gpushare()
    assert capsys.readouterr().out == "--details\n:4\n"


def test_a_snapshot_reads_back(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    """What is written answers as the cluster did, and holds no value of a variable."""
    env = [{"name": "TOKEN", "value": "a secret"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]
    box = {"name": "c", "env": env, "resources": {"limits": {"aliyun.com/gpu-mem": "3"}}}
    cluster.node("n", cards=[Card(15)])
    cluster.pod("p", node="n", index=0, spec={"containers": [box]})
    cluster.add({"kind": "ConfigMap", "metadata": {"name": "other"}, "data": {"a": "a secret"}})
    path = tmp_path / "dump.json"
    outcome = run("snapshot", str(path), on=cluster)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith("1 nodes and 1 pods")
    assert "a secret" not in path.read_text()
    assert run("inspect", "--snapshot", str(path)).out == run("inspect", on=cluster).out
    checks = json.loads(run("doctor", "-o", "json", "--snapshot", str(path)).out)["items"]
    assert "fail" in {c["result"] for c in checks if c["name"] == "no-visible-devices"}


def large(nodes: int, pods: int) -> FakeCluster:
    """Nodes of eight GPUs with pods that carry as much text as real ones."""
    cluster = FakeCluster()
    for i in range(nodes):
        cluster.node(f"n{i:04}", cards=[Card(15)] * 8)
    for i in range(pods):
        text = {"checksum/config": "0" * 1000}
        cluster.pod(f"p{i:05}", 1, node=f"n{i % nodes:04}", index=i % 8, annotations=text)
    return cluster


@pytest.mark.slow
def test_a_thousand_nodes_cost_few_plain_readings(tmp_path: Path) -> None:
    """1,000 nodes and 10,000 pods: less CPU time than five runs that read the same JSON.

    That is a second where plain Python takes 0.2: how fast the machine is does not matter.
    """
    path = tmp_path / "large.json"
    path.write_text(large(1000, 10_000).json())
    plain = ["-c", f"import json; json.load(open({str(path)!r}))"]
    line = ["-m", "gpuinspect", "inspect", "--snapshot", str(path)]
    assert _costs_less_than(5, plain, line, cache=tmp_path, tries=5)


@pytest.mark.slow
def test_help_is_quick(tmp_path: Path) -> None:
    """``--help`` takes less CPU time than ten starts of Python, 150 ms where one takes 15."""
    line = ["-m", "gpuinspect", "--help"]
    assert _costs_less_than(10, ["-c", "pass"], line, cache=tmp_path, tries=20)


def _costs_less_than(
    times: int, plain: list[str], line: list[str], *, cache: Path, tries: int
) -> bool:
    """The cheapest run of one line against the cheapest of the other; neighbours only add."""
    measure = lowest = float("inf")
    for _ in range(tries):
        measure = min(measure, _cpu_seconds(plain, cache=cache))
        lowest = min(lowest, _cpu_seconds(line, cache=cache))
        if lowest < times * measure:
            return True
    return False


def _cpu_seconds(arguments: list[str], *, cache: Path) -> float:
    """User and system time of one run; compiled modules are kept in ``cache``, as installed."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        env=kept | {"PYTHONPYCACHEPREFIX": str(cache)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=60,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    """``gpushare ... | head -1`` ends without a traceback."""
    path = tmp_path / "large.json"
    path.write_text(large(500, 0).json())
    line = f"{sys.executable} -m gpuinspect inspect -o yaml --snapshot {path} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (b"apiVersion: gpushare/v1\n", b"")
