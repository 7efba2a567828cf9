"""A real image registry: Debian's docker-registry, unpacked into the cache and not installed."""

from pathlib import Path

from host import cachedir
from host.progress import step
from offline import packages

_PACKAGE = "docker-registry"
_SUITE = "bookworm"


def ensure() -> Path:
    """The program, fetched if needed.

    Raises:
        SetupError: Debian's archive cannot be reached from here.
    """
    key = cachedir.content_key([_SUITE])
    return cachedir.entry(_PACKAGE, key, _unpack) / "usr/bin/docker-registry"


def _unpack(folder: Path) -> None:
    with step("fetch docker-registry"):
        packages.unpack(_PACKAGE, suite=_SUITE, into=folder)
