"""Debian with its own Python: the base of the service images where no official one can be had.

It holds python3 with venv and the public certificates, and is kept as a tar in the cache folder.
Services must not rely on more than Python 3.11, which is what Debian bookworm has.
"""

import tempfile
from pathlib import Path

from host import architecture, cachedir, docker
from host.architecture import Architecture
from host.progress import step
from offline import debianimage, imagecache

_PACKAGES = "python3 python3-venv"


def name(target: Architecture | None = None) -> str:
    """The image's name, whether it is there or not; it changes with everything it is made of.

    Args:
        target: the image's architecture; None for this machine's.
    """
    suffix = (target or architecture.named("")).suffix()
    return f"gpushare/python-base:{debianimage.SUITE}{suffix}-{_key(target)}"


def ensure(target: Architecture | None = None) -> str:
    """The name of the image, present in the engine when this returns; minutes the first time."""
    tag = name(target)
    suffix = (target or architecture.named("")).suffix()
    imagecache.ensure(
        tag, kind=f"python-base{suffix}", key=_key(target), build=lambda: _build(tag, target)
    )
    return tag


def dockerfile(base: str) -> str:
    """The text of the Dockerfile that puts Python onto a minimal Debian image."""
    return (
        f"FROM {base}\n"
        "RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q "
        f"--no-install-recommends {_PACKAGES} && rm -rf /var/lib/apt/lists/*\n"
    )


def _key(target: Architecture | None) -> str:
    return cachedir.content_key([dockerfile(debianimage.name(target))])


def _build(tag: str, target: Architecture | None) -> None:
    base = debianimage.ensure(target)
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as folder:
        file = Path(folder) / "Dockerfile"
        file.write_text(dockerfile(base))
        with step("build the Python base image"):
            docker.build(tag, context=Path(folder), dockerfile=file, arguments={})
