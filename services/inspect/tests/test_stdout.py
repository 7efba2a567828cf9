"""Standard streams that are closed or full, of another encoding, or a pipe that ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from drawncluster import FakeCluster, Gpu

pytestmark = pytest.mark.slow

SCRIPTS = "政策 😀 é"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two pending pods, one with an annotation in another script."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)])
    cluster.pod("odd", 16, phase="Pending", annotations={"gpushare/policy": SCRIPTS})
    path = tmp_path / "cluster.json"
    path.write_text(cluster.pod("fine", 17, phase="Pending").json())
    return path


def gpushare(
    snapshot: Path, *words: str, encoding: str = "utf-8", to: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """The command on a snapshot as a shell runs it, with a redirection of its output."""
    return redirected(*words, "--snapshot", str(snapshot), encoding=encoding, to=to)


def redirected(
    *words: str, encoding: str = "utf-8", to: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """The command as a shell runs it, with a redirection of one of its streams."""
    script = f'exec "$0" -m gpuinspect "$@" {to}'
    line = ["sh", "-c", script, sys.executable, *words]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUNBUFFERED": ""}
    return subprocess.run(line, capture_output=True, env=environment, timeout=60, check=False)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii", "utf-8"])
def test_text_of_a_tenant_is_escaped_where_it_cannot_be_encoded(
    snapshot: Path, encoding: str
) -> None:
    """In tables; and the other pods are listed."""
    done = gpushare(snapshot, "pending", "-A", encoding=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert "fine" in text
    assert ("政策" if encoding == "utf-8" else r"\u653f\u7b56") in text


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii", "utf-8"])
def test_documents_are_the_same_in_every_encoding(snapshot: Path, encoding: str, form: str) -> None:
    """Characters are escaped as JSON and YAML escape them."""
    done = gpushare(snapshot, "pending", "-A", "-o", form, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    load = json.loads if form == "json" else yaml.safe_load
    (odd, _) = sorted(load(done.stdout.decode(encoding))["items"], key=lambda each: -len(str(each)))
    assert SCRIPTS in odd["request"]["fault"]


@pytest.mark.parametrize(
    ("to", "reason"), [(">&-", "standard output is closed"), (">/dev/full", "No space left")]
)
def test_output_that_cannot_be_written_is_a_sentence(snapshot: Path, to: str, reason: str) -> None:
    """With exit code 1: a script must not take it for an empty answer."""
    done = gpushare(snapshot, "pending", "-A", to=to)
    assert done.returncode == 1
    text = done.stderr.decode()
    assert text.startswith("error: cannot write the output: ")
    assert reason in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    ["inspect --snapshot -", "whatif -f -", "convert -f -", "topology plan --matrix - --count 1"],
)
def test_closed_standard_input_is_a_sentence(words: str) -> None:
    """A command that reads ``-`` ends with exit code 1 and the reason."""
    done = redirected(*words.split(), to="<&-")
    assert done.returncode == 1
    text = done.stderr.decode()
    assert text.startswith("error: cannot read ")
    assert text.endswith("-: standard input is closed\n")


def test_closed_standard_error_changes_no_answer(snapshot: Path, tmp_path: Path) -> None:
    """Notes are lost, the table and the exit code are the same."""
    manifest = tmp_path / "pod.yaml"
    limits = {"limits": {"aliyun.com/gpu-mem": 1}}
    spec = {"containers": [{"name": "c", "resources": limits}]}
    manifest.write_text(json.dumps({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}))
    words = ("whatif", "-f", str(manifest))
    read, done = gpushare(snapshot, *words), gpushare(snapshot, *words, to="2>&-")
    assert (done.returncode, done.stdout) == (0, read.stdout)
    assert b"policy" in read.stderr


def test_a_pipe_that_nobody_reads_ends_the_command_in_silence(snapshot: Path) -> None:
    """As with ``head``."""
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-m", "gpuinspect", "pending", "-A", "--snapshot", str(snapshot)]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        line, stdout=write, stderr=subprocess.PIPE, env=environment, timeout=60, check=False
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")
