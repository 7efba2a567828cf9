"""The node image is chosen in order: a local official one, one built before, a pulled one."""

import pytest

import offline
from cluster import nodeimage
from cluster.nodeimage import NodeImage
from host.testing.fakeprograms import FakePrograms

# A fake engine: `images` are held, `registry` gives what can be pulled, and the version in an
# official image is the one in its name.
DOCKER = """
case "$1 $2" in
  "image ls") for name in {images}; do echo "$name"; done | while read -r name; do
      case "$name" in kindest/node*) echo "$name";; esac; done ;;
  "image inspect") for name in {images}; do [ "$name" = "$3" ] && exit 0; done; exit 1 ;;
  "pull --quiet") for name in {registry}; do [ "$name" = "$3" ] && exit 0; done; exit 1 ;;
  "run --rm") echo "${{5#kindest/node:}}" ;;
  *) exit 9 ;;
esac
"""


@pytest.fixture(autouse=True)
def no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    """No version is requested."""
    monkeypatch.delenv("KUBERNETES", raising=False)


def fake_engine(programs: FakePrograms, *, images: str = "", registry: str = "") -> None:
    programs.add("docker", DOCKER.format(images=images, registry=registry))


def test_a_local_official_image_wins_and_nothing_is_pulled(programs: FakePrograms) -> None:
    """An image someone loaded is used, dangling ones are not."""
    fake_engine(programs, images=f"kindest/node:\\<none\\> kindest/node:v1.29.0 {built()}")
    assert nodeimage.ensure() == NodeImage("kindest/node:v1.29.0", "1.29.0", built_here=False)
    assert not [call for call in programs.calls() if "pull" in call]


def test_a_local_official_image_of_another_version_is_not_the_one_requested(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With KUBERNETES set an image of that minor version is taken, or the one built of it."""
    monkeypatch.setenv("KUBERNETES", "1.20")
    images = f"kindest/node:v1.37.0 {built(offline.OLDEST)}"
    fake_engine(programs, images=images)
    expected = NodeImage(built(offline.OLDEST), offline.OLDEST, built_here=True)
    assert nodeimage.ensure() == expected
    fake_engine(programs, images=f"{images} kindest/node:v1.20.15")
    assert nodeimage.ensure() == NodeImage("kindest/node:v1.20.15", "1.20.15", built_here=False)


def test_an_image_built_before_is_used_without_a_registry(programs: FakePrograms) -> None:
    """A second run is quick and needs no network."""
    fake_engine(programs, images=built())
    assert nodeimage.ensure() == NodeImage(built(), offline.NEWEST, built_here=True)
    assert not [call for call in programs.calls() if "pull" in call]


def test_an_outdated_build_is_not_used_when_the_official_image_can_be_pulled(
    programs: FakePrograms,
) -> None:
    """An image built from other inputs has another name, so it is pulled from the registry."""
    old = f"gpushare/kind-node:v{offline.NEWEST}-old"
    fake_engine(programs, images=old, registry="kindest/node:v1.37.0")
    assert nodeimage.ensure() == NodeImage("kindest/node:v1.37.0", "1.37.0", built_here=False)


def built(version: str = offline.NEWEST) -> str:
    return offline.node_image_name(version)


@pytest.mark.parametrize("version", [offline.NEWEST, offline.OLDEST])
def test_the_built_name_depends_on_what_it_is_made_of(version: str) -> None:
    """The tag carries the Kubernetes version and a content key, and is never an official name."""
    assert built(version).startswith(f"gpushare/kind-node:v{version}-")
    assert built(version) != f"gpushare/kind-node:v{version}-"


def test_an_image_describes_itself_with_version_and_origin() -> None:
    """Whoever reads the output of a run sees what it ran on."""
    image = NodeImage("kindest/node:mine", "1.29.0", built_here=False)
    expected = "Kubernetes 1.29.0, node image kindest/node:mine (local or pulled)"
    assert image.described() == expected
