"""The service images as the engine holds them: what is in one, and what one built again is."""

import tempfile
import time
from pathlib import Path

from cluster import baseimage, engine
from host import docker
from host.commands import succeeds
from images import base as bases
from images import build, catalogue
from images.catalogue import Image

__all__ = ["SERVICES", "Image", "ensure", "identity", "identity_built_again", "succeeds_in"]
SERVICES = (catalogue.EXTENDER, catalogue.DEVICE_PLUGIN, catalogue.INSPECT)
LAST_STAGE = "FROM locked AS own\n"
"""The line of a service's Dockerfile after which the workspace's own code is installed."""
_AGAIN = "gpushare/reproducible:again"
_RUN_SECONDS = 300


def ensure() -> None:
    """All images, in an engine that answers."""
    engine.ensure()
    build.ensure()


def identity(image: Image) -> str:
    """The id of an image."""
    return docker.identity(_tag(image))


def identity_built_again(image: Image) -> str:
    """The id of the image that is made when its last stage is built anew; it is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "Dockerfile"
        turn = f"{LAST_STAGE}ENV TURN={time.time_ns()}\n"
        file.write_text(image.dockerfile.read_text().replace(LAST_STAGE, turn))
        base = bases.probe(baseimage.ensure())
        with build.building():
            build.make(image, base, _AGAIN, dockerfile=file)
            try:
                return docker.identity(_AGAIN)
            finally:
                docker.remove([_AGAIN])


def succeeds_in(image: Image, script: str) -> bool:
    """Whether a shell script exits 0 in a container of the image, which has no network."""
    options = ["--rm", "--network=none", "--read-only", "--entrypoint", "sh"]
    command = ["docker", "run", *options, _tag(image), "-c", script]
    return succeeds(command, timeout_s=_RUN_SECONDS)


def _tag(image: Image) -> str:
    return image.tag(bases.probe(baseimage.ensure()))
