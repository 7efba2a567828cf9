"""The images as the engine holds them: made of equal layers again, and of nothing superfluous."""

import json
import tempfile
from pathlib import Path

import pytest

from cluster import baseimage, docker, engine
from cluster.commands import run, succeeds
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
def test_the_own_layer_is_reproducible() -> None:
    """The layer with the workspace's own code has the same digest when it is built again."""
    image = catalogue.INSPECT
    base = bases.probe(baseimage.ensure())
    layers = []
    for turn in ("1", "2"):
        with tempfile.TemporaryDirectory() as folder:
            context, file = Path(folder) / "context", Path(folder) / "Dockerfile"
            context.mkdir()
            build.lay_out(image, base, context)
            again = f"FROM locked AS own\nENV TURN={turn}\n"
            file.write_text(image.dockerfile.read_text().replace("FROM locked AS own\n", again))
            tag = f"gpushare/reproducible:{turn}"
            docker.build(
                tag, context=context, dockerfile=file, arguments=build.arguments(image, base)
            )
        layers.append(_layers(tag))
        run(["docker", "image", "rm", tag], timeout_s=60)
    assert layers[0] == layers[1]
    assert len(layers[0]) == 3  # the runtime, the locked packages, our own code


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


def _layers(image: str) -> list[str]:
    shown = run(
        ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", image], timeout_s=30
    )
    found: list[str] = json.loads(shown)
    return found
