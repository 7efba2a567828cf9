"""Debian with its own Python: the base of the service images where no official one can be had.

It holds python3 with venv and the public certificates, and is kept as a tar in the cache folder.
Services must not rely on more than Python 3.11, which is what Debian bookworm has.
"""

import tempfile
from pathlib import Path

from host import cachedir, docker
from host.progress import step
from offline import debianimage, imagecache

_PACKAGES = "python3 python3-venv"


def name() -> str:
    """The image's name, whether it is there or not; it changes with everything it is made of."""
    return f"gpushare/python-base:{debianimage.SUITE}-{_key()}"


def ensure() -> str:
    """The name of the image, present in the engine when this returns; minutes the first time."""
    tag = name()
    imagecache.ensure(tag, kind="python-base", key=_key(), build=lambda: _build(tag))
    return tag


def dockerfile(base: str) -> str:
    """The text of the Dockerfile that puts Python onto a minimal Debian image."""
    return (
        f"FROM {base}\n"
        "RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q "
        f"--no-install-recommends {_PACKAGES} && rm -rf /var/lib/apt/lists/*\n"
    )


def _key() -> str:
    return cachedir.content_key([dockerfile(debianimage.name())])


def _build(tag: str) -> None:
    base = debianimage.ensure()
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as folder:
        file = Path(folder) / "Dockerfile"
        file.write_text(dockerfile(base))
        with step("build the Python base image"):
            docker.build(tag, context=Path(folder), dockerfile=file, arguments={})
