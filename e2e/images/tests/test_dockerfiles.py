"""What every service's Dockerfile must keep, read as text."""

from pathlib import Path

import pytest

from images import catalogue
from images.catalogue import DEVICE_PLUGIN, EXTENDER, INSPECT, Image

SERVICES = (EXTENDER, DEVICE_PLUGIN, INSPECT)


@pytest.mark.parametrize("image", catalogue.ALL, ids=lambda image: image.name)
def test_base_is_an_argument(image: Image) -> None:
    """Every stage stands on the base that the builder names."""
    lines = _instructions(image.dockerfile)
    assert lines[0] == "ARG BASE=python:3.12-slim"
    bases = [line for line in lines if line.startswith("FROM ")]
    assert bases
    grounds = {line.split(" AS ")[0] for line in bases}
    assert grounds <= {"FROM ${BASE}", "FROM ${RUNTIME}", "FROM locked"}


@pytest.mark.parametrize("image", SERVICES, ids=lambda image: image.name)
def test_installs_are_hashed_and_offline(image: Image) -> None:
    """Pip sees no index and takes nothing whose hash is not written down."""
    (line,) = [line for line in _instructions(image.dockerfile) if line.startswith("ENV INSTALL=")]
    assert {"--no-index", "--require-hashes", "--no-deps"} <= set(line.strip('"').split())


@pytest.mark.parametrize(
    ("image", "user"), [(EXTENDER, "65532:65532"), (INSPECT, "65532:65532"), (DEVICE_PLUGIN, "0:0")]
)
def test_user(image: Image, user: str) -> None:
    """Only the device plugin, whose sockets lie in root's folders, runs as root."""
    assert f"USER {user}" in _instructions(image.dockerfile)


def _instructions(dockerfile: Path) -> list[str]:
    """Instructions with continued lines joined, comments left out."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
