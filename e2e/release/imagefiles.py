"""The service images of a release: their names, their archives, and their way into a registry."""

import gzip
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from host import docker
from host.errors import SetupError
from images import settled

SERVICES: Final = ("extender", "deviceplugin", "inspect")
"""What the chart installs, by the last part of the repository."""
_DIGEST: Final = re.compile(r"digest: (sha256:[0-9a-f]{64})")
_LEVEL: Final = 6


def give_version(built: Iterable[str], version: str) -> tuple[str, ...]:
    """Give each image the tag of the release beside its own; the new names.

    An image for another architecture than this machine's has `-arm64` at its end, before and after.
    """
    names = []
    for name in built:
        repository, _, tag = name.partition(":")
        _, dash, architecture = tag.partition("-")
        names.append(f"{repository}:{version}{dash}{architecture}")
        docker.tag(name, names[-1])
    return tuple(names)


def archive(name: str, epoch: int, into: Path) -> Path:
    """Write `<service>-<version>.tar.gz` for `docker load`; equal images make equal bytes.

    Args:
        name: repository and tag in the engine.
        epoch: the time in the image's configuration, in seconds, which keeps the image's id.
        into: an existing folder.
    """
    repository, _, version = name.partition(":")
    path = into / f"{repository.rpartition('/')[2]}-{version}.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        saved, plain = Path(folder) / "saved.tar", Path(folder) / "plain.tar"
        docker.save([name], saved)
        settled.rewrite(saved, plain, name, epoch)
        with (
            plain.open("rb") as source,
            path.open("wb") as raw,
            gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
    return path


def push(name: str, registry: str) -> tuple[str, str]:
    """Push an image below the registry; its name there and its digest."""
    remote = f"{registry}/{name}"
    docker.tag(name, remote)
    try:
        found = _DIGEST.search(docker.push(remote))
    finally:
        docker.remove([remote])
    if found is None:
        raise SetupError(f"`docker push {remote}` printed no digest")
    return remote, found[1]
