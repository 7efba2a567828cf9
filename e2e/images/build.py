"""Builds the images that are not in the engine yet, each from a context of its own.

The context is laid out in the cache folder, never in the checkout: the service's Dockerfile, its
requirement file and all wheels, so that the build needs no network. Nothing is pushed anywhere.
"""

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster import baseimage, cachedir, docker
from cluster.progress import step
from images import base as bases
from images import catalogue, wheels
from images.base import Base
from images.catalogue import Image

EPOCH = 1_767_225_600
"""The time of every file in our images, in seconds: 2026-01-01. What is new is told by the tag."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """Names of the images, all present in the engine."""

    extender: str
    deviceplugin: str
    inspect: str
    sample: str
    modelserver: str

    def names(self) -> tuple[str, ...]:
        """All of them, in the order of the catalogue."""
        return (self.extender, self.deviceplugin, self.inspect, self.sample, self.modelserver)


def ensure(base: str | None = None) -> Built:
    """Build what is missing on this base image, the cluster's own choice where none is named.

    Raises:
        ClusterError: the engine, the package index or a Dockerfile failed; says which command.
    """
    ground = bases.probe(base or baseimage.ensure())
    return Built(**{image.name: _ensure(image, ground) for image in catalogue.ALL})


def _ensure(image: Image, base: Base) -> str:
    if image.ground is not None:
        _ensure(image.ground, base)
    tag = image.tag(base)
    if not docker.has_image(tag):
        with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
            lay_out(image, base, Path(name))
            with step(f"build {tag}"):
                _build(image, base, tag, Path(name))
    return tag


def lay_out(image: Image, base: Base, context: Path) -> None:
    """Fill a build context: the image's own files, and what it installs."""
    for file in image.files:
        shutil.copyfile(file, context / file.name)
    if image.requirements is None:
        return
    shutil.copyfile(image.requirements, context / "requirements.txt")
    shutil.copytree(wheels.fetch(image.requirements, base), context / "wheels")
    members = context / "members"
    members.mkdir()
    own = [wheels.build(member, into=members) for member in image.members]
    (members / "requirements.txt").write_text(members_file(own))


def members_file(own: Iterable[Path]) -> str:
    """The requirement file of the workspace's own wheels."""
    return "".join(f"{wheels.requirement(wheel)}\n" for wheel in own)


def arguments(image: Image, base: Base) -> dict[str, str]:
    """What the Dockerfile is told: its grounds, the time of its files, the version it bears."""
    told = {"BASE": base.name, "EPOCH": str(EPOCH), "VERSION": image.tag(base).rpartition(":")[2]}
    if image.ground is not None:
        told["RUNTIME"] = image.ground.tag(base)
    return told


def _build(image: Image, base: Base, tag: str, context: Path) -> None:
    docker.build(
        tag, context=context, dockerfile=image.dockerfile, arguments=arguments(image, base)
    )
