"""Builds the images that are not in the engine yet, each from a context of its own.

The context is laid out in the cache folder, never in the checkout: the service's Dockerfile, its
requirement file and all wheels, so that the build needs no network. Nothing is pushed anywhere.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cluster import baseimage
from host import architecture, cachedir, docker
from host.architecture import Architecture
from host.progress import step
from images import base as bases
from images import catalogue, old, settled, wheels
from images.base import Base
from images.catalogue import Image

_LOCK = "images"
"""Held while images are built: two builds of one image use the same temporary name."""
EPOCH = 1_767_225_600
"""The time of every file in our images, in seconds: 2026-01-01. The tag distinguishes versions."""


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


def ensure(base: str | None = None, target: Architecture | None = None) -> Built:
    """Build what is missing on this base image, the cluster's own choice where none is named.

    Args:
        base: name of the image.
        target: architecture of the base that is chosen; None for this machine's.

    Raises:
        SetupError: the engine, the package index or a Dockerfile failed; states which command.
    """
    ground = bases.probe(base or baseimage.ensure(target))
    names = {image.name: image.tag(ground) for image in catalogue.GROUNDS_FIRST}
    if _missing(ground):
        with building():
            for image in _missing(ground):  # another process may have built some meanwhile
                make(image, ground, image.tag(ground))
            old.forget([name.partition(":")[0] for name in names.values()], keep=names.values())
    for name in names.values():
        docker.mark_used(name)
    return Built(**{image.name: names[image.name] for image in catalogue.ALL})


def _missing(base: Base) -> list[Image]:
    return [image for image in catalogue.GROUNDS_FIRST if not docker.has_image(image.tag(base))]


def building() -> AbstractContextManager[None]:
    """The only build of images on this machine: another process that builds is waited for."""
    return cachedir.locked(_LOCK)


def make(
    image: Image, base: Base, name: str, *, dockerfile: Path | None = None, cached: bool = True
) -> None:
    """Build an image. The caller holds :func:`building`.

    Args:
        image: what it is made of.
        base: what it stands on.
        name: repository and tag that it gets.
        dockerfile: in place of its own, which a case may vary.
        cached: steps that the engine remembers are not taken again.
    """
    raw = f"{name}-built"  # an image that bears its name is complete
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as folder:
        lay_out(image, base, Path(folder))
        with step(f"build {name}"):
            docker.build(
                raw,
                context=Path(folder),
                dockerfile=dockerfile or image.dockerfile,
                arguments=arguments(image, base),
                cached=cached,
            )
            settled.settle(raw, name, EPOCH, architecture=architecture.of_machine(base.machine))
            docker.remove([raw])


def repeated(
    base: str | None = None, target: Architecture | None = None
) -> Iterator[tuple[str, str, str]]:
    """Every image, the shared runtime included: its name, its id, and the id of one built anew."""
    ground = bases.probe(base or baseimage.ensure(target))
    for image in catalogue.GROUNDS_FIRST:
        name = image.tag(ground)
        again = f"{name}-again"
        with building():
            make(image, ground, again, cached=False)
            ids = docker.identity(name), docker.identity(again)
            docker.remove([again])
        yield name, *ids


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
    """Build arguments: its grounds, the time of its files, the version it bears."""
    build_args = {
        "BASE": base.name,
        "EPOCH": str(EPOCH),
        "VERSION": image.tag(base).rpartition(":")[2],
    }
    if image.ground is not None:
        build_args["RUNTIME"] = image.ground.tag(base)
    return build_args
