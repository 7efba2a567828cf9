"""A cluster is created once, used again while its nodes run, and made anew when they stopped."""

from pathlib import Path

import pytest

from cluster import lifecycle
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms

pytestmark = pytest.mark.slow

# A fake kind whose clusters are files; its nodes run when the fake docker reports them.
KIND = """
case "$1 $2" in
  "get clusters") [ -e "{made}" ] && echo demo; exit 0 ;;
  "get nodes") echo demo-control-plane ;;
  "create cluster") : > "{made}" ;;
  "delete cluster") [ -e "{made}" ] && {rm} "{made}"; exit 0 ;;
esac
"""
DOCKER = """
case "$1 $2" in
  "image ls") echo kindest/node:v1.32.2 ;;
  "run --rm") echo v1.32.2 ;;
  inspect*) echo '[{{"Created": "2026-01-01T00:00:00.123456789Z",
    "Config": {{"Image": "kindest/node:{tag}"}},
    "State": {{"Running": {running}, "StartedAt": "2026-01-01T{started}.123456789Z"}}}}]' ;;
esac
"""

EXPLAINED = """
case "$*" in
  *journalctl*) echo "watcher: too many open files"; exit 0 ;;
  *json*State*) echo '{"Running": true, "ExitCode": 0}'; exit 0 ;;
esac
"""
FRESH = {"running": "true", "started": "00:00:02", "tag": "v1.32.2"}


@pytest.fixture(autouse=True)
def kubectl_from_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake image holds no program, and no version is requested."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr(lifecycle, "require", lambda: None)
    monkeypatch.delenv("KUBERNETES", raising=False)


@pytest.fixture
def made(programs: FakePrograms, tmp_path: Path) -> Path:
    """The file that exists while the fake cluster does."""
    made = tmp_path / "made"
    programs.add("kind", KIND.format(made=made, rm="/bin/rm"))
    programs.add("docker", DOCKER.format(**FRESH))
    programs.add("kubectl", "echo node/demo-control-plane")
    return made


def up(tmp_path: Path, *, reuse: bool = True) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    lifecycle.up("demo", config=tmp_path / "kind.json", kubeconfig=kubeconfig, reuse=reuse)


def count(programs: FakePrograms, words: str) -> int:
    return sum(words in call for call in programs.calls())


def test_a_second_up_uses_the_running_cluster_again(
    programs: FakePrograms, made: Path, tmp_path: Path
) -> None:
    """The cluster is created once; the second time only its kubeconfig is written."""
    up(tmp_path)
    up(tmp_path)
    assert made.exists()
    assert count(programs, "kind create cluster") == 1
    assert count(programs, "kind export kubeconfig") == 1


@pytest.mark.parametrize(
    ("node", "reuse"),
    [
        ({"running": "false"}, True),
        ({"started": "05:00:00"}, True),
        ({"tag": "v1.29.0"}, True),
        ({}, False),
    ],
    ids=["stopped", "started again", "of another node image", "not to be used again"],
)
def test_a_cluster_that_cannot_be_trusted_is_made_anew(
    programs: FakePrograms, made: Path, tmp_path: Path, node: dict[str, str], *, reuse: bool
) -> None:
    """After a restart of the engine, or where none may be used again, old nodes go first."""
    made.touch()
    programs.add("docker", DOCKER.format(**FRESH | node))
    up(tmp_path, reuse=reuse)
    words = [call.split()[1] for call in programs.calls() if call.startswith("kind")]
    assert [word for word in words if word in {"create", "delete"}] == ["delete", "create"]


def test_nodes_that_never_get_ready_are_reported(programs: FakePrograms, tmp_path: Path) -> None:
    """When kubectl gives up, its own words are in the error."""
    late = "*wait*) echo 'timed out waiting for the condition on nodes/demo' >&2; exit 1 ;;"
    programs.add("kubectl", f'case "$*" in {late} esac')
    kubectl = programs.folder / "kubectl"
    with pytest.raises(
        SetupError, match=r"(?s)not ready within 60 s.*timed out waiting for the condition"
    ):
        lifecycle.wait_ready(tmp_path / "kubeconfig", [], kubectl=kubectl, timeout_s=60)


def test_both_waits_share_one_deadline(programs: FakePrograms, tmp_path: Path) -> None:
    """Each check gets the time that is left, never more than the whole."""
    programs.add("kubectl", "exit 0")
    kubectl = programs.folder / "kubectl"
    lifecycle.wait_ready(tmp_path / "kubeconfig", [], kubectl=kubectl, timeout_s=60)
    waits = [call for call in programs.calls() if "--timeout=" in call]
    limits = [float(call.rpartition("--timeout=")[2].rstrip("s")) for call in waits]
    assert 60 >= limits[0] >= limits[1] > 0


def test_a_cluster_whose_creation_was_interrupted_is_made_anew(
    programs: FakePrograms, made: Path, tmp_path: Path
) -> None:
    """Its nodes run, but kind was ended before all had joined."""
    made.touch()
    up(tmp_path)
    words = [call.split()[1] for call in programs.calls() if call.startswith("kind")]
    assert [word for word in words if word in {"create", "delete"}] == ["delete", "create"]


def test_a_failed_creation_names_what_the_nodes_logged_and_leaves_none(
    programs: FakePrograms, made: Path, tmp_path: Path
) -> None:
    """The engine keeps them for that; they go once their logs were read."""
    fails = f'[ "$1" = create ] && {{ : > "{made}"; exit 1; }}\n'
    programs.add("kind", fails + KIND.format(made=made, rm="/bin/rm"))
    programs.add("docker", EXPLAINED + DOCKER.format(**FRESH))
    with pytest.raises(SetupError, match=r"(?s)was not created: node demo.*too many open files"):
        up(tmp_path)
    assert not made.exists()


def test_a_cluster_that_docker_could_not_remove_at_once_is_removed(
    programs: FakePrograms, made: Path
) -> None:
    """Docker gives a node 10 s to die; on a busy machine the next try finds it dead."""
    made.touch()
    once = (
        f'[ "$1" = delete ] && [ ! -e "{made}.tried" ] && {{ : > "{made}.tried"; '
        "echo 'tried to kill container, but did not receive an exit event' >&2; exit 1; }\n"
    )
    programs.add("kind", once + KIND.format(made=made, rm="/bin/rm"))
    lifecycle.down("demo")
    assert not made.exists()


def test_a_cluster_that_cannot_be_removed_is_an_error(programs: FakePrograms) -> None:
    """After the last try the error has Docker's own words."""
    programs.add("kind", "echo 'did not receive an exit event' >&2; exit 1")
    with pytest.raises(SetupError, match="exit event"):
        lifecycle.down("demo")
    deleted = [call for call in programs.calls() if "delete cluster" in call]
    assert len(deleted) == 3


def test_a_node_that_never_registers_is_named(programs: FakePrograms, tmp_path: Path) -> None:
    """Whoever labels it later would only learn that it is not found."""
    programs.add("kubectl", "echo node/demo-control-plane")
    programs.add("docker", "exit 1")
    kubectl = [str(programs.folder / "kubectl")]
    with pytest.raises(SetupError, match=r"demo-worker did not register .*container is gone"):
        lifecycle.wait_registered(kubectl, ["demo-control-plane", "demo-worker"], seconds=0.1)
