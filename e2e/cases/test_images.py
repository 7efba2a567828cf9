"""The images as the engine holds them: the same when built again, and of nothing superfluous."""

import tempfile
import time
from pathlib import Path

import pytest

from cluster import baseimage, docker, engine
from cluster.commands import succeeds
from images import base as bases
from images import build, catalogue
from images.catalogue import Image

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def built() -> None:
    """All images, in an engine; no cluster is needed."""
    engine.ensure()
    build.ensure()


@pytest.mark.usefixtures("built")
def test_an_image_that_is_built_again_is_the_same_image() -> None:
    """The layer with the workspace's own code is made anew, and the image has its id again."""
    base = bases.probe(baseimage.ensure())
    image = catalogue.INSPECT
    again = "gpushare/reproducible:again"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Dockerfile"
        turn = f"FROM locked AS own\nENV TURN={time.time_ns()}\n"
        file.write_text(image.dockerfile.read_text().replace("FROM locked AS own\n", turn))
        build.make(image, base, again, dockerfile=file)
    try:
        assert docker.identity(again) == docker.identity(image.tag(base))
    finally:
        docker.remove([again])


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("image", [catalogue.EXTENDER, catalogue.DEVICE_PLUGIN, catalogue.INSPECT])
def test_nothing_in_an_image_installs_or_builds(image: Image) -> None:
    """A service's image has no package manager, no pip, no perl and no compiler."""
    tag = image.tag(bases.probe(baseimage.ensure()))
    look = "python3 -c 'import pip' || python3 -c 'import ensurepip'"
    options = ["--rm", "--network=none", "--read-only", "--entrypoint", "sh"]
    assert not succeeds(["docker", "run", *options, tag, "-c", look], timeout_s=60)
    quiet = 'test -z "$(command -v apt-get dpkg perl gcc pip pip3)"'
    assert succeeds(["docker", "run", *options, tag, "-c", quiet], timeout_s=60)
