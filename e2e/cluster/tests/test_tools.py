"""kind comes from PATH if it is new enough, kubectl from the node image."""

from pathlib import Path

import pytest

import offline
from cluster import tools
from cluster.nodeimage import NodeImage
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms
from offline import goprograms, kindprogram

OFFICIAL = NodeImage("kindest/node:v1.32.2", "1.32.2", built_here=False)
# A fake engine whose containers hold one program.
DOCKER = """
case "$1" in
  image) echo sha256:0 ;;
  create) echo box ;;
  cp) echo "$2" > "$3" ;;
esac
"""


@pytest.fixture(autouse=True)
def no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Go module proxy cannot be reached."""
    monkeypatch.setattr(goprograms, "obtainable", lambda _: False)


@pytest.mark.usefixtures("cache")
def test_kind_is_the_one_on_path_and_kubectl_the_image_s(programs: FakePrograms) -> None:
    """Nothing is installed, and kubectl fits the API server whatever is on PATH."""
    programs.add("kind", "exit 1")
    programs.add("kubectl", "exit 1")
    programs.add("docker", DOCKER)
    found = tools.ensure(OFFICIAL)
    assert found.kind == programs.folder / "kind"
    assert found.kubectl.read_text() == "box:/usr/bin/kubectl\n"
    assert programs.calls()[-1] == "docker rm box"


@pytest.mark.parametrize(("reported", "compiled"), [("v0.27.0", True), ("v0.33.0", False)])
def test_a_kind_that_is_too_old_for_the_newest_is_left_alone(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch, reported: str, *, compiled: bool
) -> None:
    """It would write a configuration that the newest kubeadm does not read."""
    programs.add("kind", f"echo kind {reported} go1.24.4 linux/amd64")
    monkeypatch.setattr(goprograms, "obtainable", lambda _: True)
    monkeypatch.setattr(kindprogram, "_compiled", lambda: Path("/compiled/kind"))
    expected = Path("/compiled/kind") if compiled else programs.folder / "kind"
    assert tools.kind(offline.NEWEST) == expected
    assert tools.kind(offline.OLDEST) == programs.folder / "kind"


@pytest.mark.usefixtures("no_root")
def test_without_kind_and_root_the_error_names_kind(programs: FakePrograms) -> None:
    """A person without root is instructed to put kind on PATH."""
    programs.add("sudo", "exit 1")
    with pytest.raises(SetupError, match="kind is not on PATH and installing it needs root"):
        tools.kind(offline.OLDEST)


@pytest.mark.usefixtures("cache")
def test_without_a_package_of_kind_the_cause_is_part_of_the_sentence(
    programs: FakePrograms, tmp_path: Path
) -> None:
    """As root, but where apt has no such package, the error names the program and the cause."""
    programs.add("sudo", "exit 0")
    with pytest.raises(SetupError, match=r"(?s)kind is not on PATH and its package.*apt-get"):
        tools.kind(offline.OLDEST)
