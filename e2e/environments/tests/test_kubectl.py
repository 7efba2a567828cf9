"""Commands that do not reach their server are given again, and no others."""

import json
from pathlib import Path

import pytest

from environments import kubectl
from environments.kubectl import Kubectl, KubectlError

REFUSED = "Error from server: error dialing backend: dial tcp 10.0.0.2:10250: connect: "
RESTARTED = "error: unable to upgrade connection: pod does not exist"
RUNTIME = (
    "error: unable to upgrade connection: rpc error: code = Unavailable desc = connection error: "
    "dial unix /run/containerd/containerd.sock: connect: no such file or directory"
)
DISCOVERY = 'error: unable to recognize "STDIN": Get "https://127.0.0.1:6443/api?timeout=32s": EOF'
LOGGED = (
    'E1128 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list: '
    'Get \\"https://[::1]:6443/api?timeout=32s\\": EOF"'
)
OBJECT = 'error: Get "https://127.0.0.1:6443/api/v1/namespaces/x/pods/y": EOF'
LOST = "Error from server: etcdserver: request timed out"
FORBIDDEN = 'Error from server (Forbidden): pods is forbidden: User "tenant" cannot list'


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A kubectl that fails with the next line of `errors`, and works when there is none left."""
    file = tmp_path / "kubectl"
    file.write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$1" >> calls\n'
        "test -s errors || { echo done; exit 0; }\n"
        "head -n 1 errors >&2; sed -i 1d errors; exit 1\n"
    )
    file.chmod(0o755)
    return file


def given(program: Path, *errors: str) -> Kubectl:
    """A kubectl that fails this way first."""
    (program.parent / "errors").write_text("".join(f"{line}\n" for line in errors))
    return Kubectl(program, program.parent / "kubeconfig")


def calls(program: Path) -> int:
    """How often it was started."""
    return len((program.parent / "calls").read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("exec", f"{REFUSED}connection refused"),
        ("exec", RESTARTED),
        ("exec", RUNTIME),
        ("create", DISCOVERY),
        ("delete", LOGGED),
        ("get", LOST),
    ],
)
def test_a_command_that_did_not_arrive_is_given_again(program: Path, verb: str, error: str) -> None:
    """A kubelet that restarts does not listen, then has no pods, and then answers."""
    assert given(program, error, error)(verb, "x") == "done\n"
    assert calls(program) == 3


@pytest.mark.parametrize(
    ("verb", "error"), [("exec", "command terminated with exit code 1"), ("get", FORBIDDEN)]
)
def test_a_refusal_is_an_error_at_once(program: Path, verb: str, error: str) -> None:
    """What the server refused is raised with its words."""
    with pytest.raises(KubectlError, match=error.replace("(", ".").replace(")", ".")):
        given(program, error)(verb, "x")
    assert calls(program) == 1


@pytest.mark.parametrize("error", [LOST, OBJECT])
def test_a_creation_that_may_have_happened_is_not_sent_again(program: Path, error: str) -> None:
    """`create` twice would fail where the first one has worked."""
    with pytest.raises(KubectlError, match=error.rpartition(" ")[2]):
        given(program, error)("create", "x")
    assert calls(program) == 1


@pytest.mark.slow
def test_a_server_that_stays_away_is_an_error(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait has an end, and the error is that of the last attempt."""
    monkeypatch.setattr(kubectl, "TRANSPORT_SECONDS", 0.5)
    with pytest.raises(KubectlError, match="pod does not exist"):
        given(program, *[RESTARTED] * 100)("exec", "x")


def test_a_command_that_does_not_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, and the error states after what time."""
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(kubectl, "COMMAND_SECONDS", 0.2)
    with pytest.raises(KubectlError, match=r"did not end within 0\.2 s"):
        Kubectl(program, tmp_path / "kubeconfig")("get", "pods")


def test_objects_are_given_as_one_list(program: Path) -> None:
    """`apply` sends all objects in one document."""
    program.write_text("#!/bin/sh\ncat > " + str(program.parent / "stdin") + "\n")
    given(program).apply({"kind": "Pod"}, {"kind": "Node"})
    document = json.loads((program.parent / "stdin").read_text())
    assert [item["kind"] for item in document["items"]] == ["Pod", "Node"]
