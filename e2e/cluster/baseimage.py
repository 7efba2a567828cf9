"""The base of the service images: the official Python image, or Debian with its own Python.

Ours holds python3 with venv and the public certificates, and is kept as a tar in the cache folder.
Services must not rely on more than Python 3.11, which is what Debian bookworm has.
"""

import tempfile
from pathlib import Path

from cluster import cachedir, debianimage, docker, imagecache
from cluster.progress import say, step

_OFFICIAL = "python:3.12-slim"
_PULL_TIMEOUT_S = 180.0
_PACKAGES = "python3 python3-venv"


def ensure() -> str:
    """The name of the base image, present in the engine when this returns."""
    if docker.has_image(_OFFICIAL):
        return _OFFICIAL
    tag = f"gpushare/python-base:{debianimage.SUITE}-{_key()}"
    if docker.has_image(tag):
        return tag
    with step(f"try to pull {_OFFICIAL}"):
        if docker.pull(_OFFICIAL, timeout_s=_PULL_TIMEOUT_S):
            return _OFFICIAL
    say(f"{_OFFICIAL} is neither here nor to be pulled: Debian's own Python is used")
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
    return cachedir.content_key([], [Path(__file__), Path(debianimage.__file__)])


def _build(tag: str) -> None:
    base = debianimage.ensure()
    with tempfile.TemporaryDirectory(dir=cachedir.root(), prefix="context-") as name:
        file = Path(name) / "Dockerfile"
        file.write_text(dockerfile(base))
        with step("build the Python base image"):
            docker.build(tag, context=Path(name), dockerfile=file, arguments={})
