"""The node image is chosen in order: a local official one, one built before, a pulled one."""

import pytest

from cluster import nodeimage
from cluster.nodeimage import NodeImage
from cluster.tests.fakeprograms import FakePrograms

# A fake engine: `images` are held, `registry` gives what can be pulled.
DOCKER = """
case "$1 $2" in
  "image ls") for name in {images}; do echo "$name"; done | while read -r name; do
      case "$name" in kindest/node*) echo "$name";; esac; done ;;
  "image inspect") for name in {images}; do [ "$name" = "$3" ] && exit 0; done; exit 1 ;;
  "pull --quiet") for name in {registry}; do [ "$name" = "$3" ] && exit 0; done; exit 1 ;;
  *) exit 9 ;;
esac
"""


def fake_engine(programs: FakePrograms, *, images: str = "", registry: str = "") -> None:
    programs.add("docker", DOCKER.format(images=images, registry=registry))


def test_a_local_official_image_wins_and_nothing_is_pulled(programs: FakePrograms) -> None:
    """An image someone loaded is used, dangling ones are not."""
    fake_engine(programs, images=f"kindest/node:\\<none\\> kindest/node:v1.29.0 {built()}")
    assert nodeimage.ensure() == NodeImage("kindest/node:v1.29.0", built_here=False)
    assert not [call for call in programs.calls() if "pull" in call]


def test_an_image_built_before_is_used_without_asking_a_registry(programs: FakePrograms) -> None:
    """A second run is quick and needs no network."""
    fake_engine(programs, images=built())
    assert nodeimage.ensure() == NodeImage(built(), built_here=True)
    assert not [call for call in programs.calls() if "pull" in call]


def test_an_outdated_build_is_not_used_when_the_official_image_can_be_pulled(
    programs: FakePrograms,
) -> None:
    """An image built from other inputs has another name, so the registry is asked."""
    fake_engine(programs, images="gpushare/kind-node:v1.20.2-old", registry="kindest/node:v1.32.2")
    assert nodeimage.ensure() == NodeImage("kindest/node:v1.32.2", built_here=False)


def built() -> str:
    return nodeimage.built_tag()


@pytest.mark.parametrize("other", ["gpushare/kind-node:v1.20.2", "kindest/node:v1.20.2"])
def test_the_built_name_tells_what_it_is_made_of(other: str) -> None:
    """The tag carries the Kubernetes version and a content key, and is never an official name."""
    assert built() != other
    assert built().startswith("gpushare/kind-node:v1.20.2-")
