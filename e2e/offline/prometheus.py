"""Prometheus and promtool from Debian's package, which need libc alone.

Whatever is on PATH is used as it is; else the package is unpacked into the cache. Nothing is
installed, and no service is started.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from host import cachedir
from host.progress import step
from offline import packages

_PACKAGE = "prometheus"
_SUITE = "bookworm"


@dataclass(frozen=True)
class Programs:
    """Paths of the two, for callers that must not depend on PATH."""

    prometheus: Path
    promtool: Path


def ensure() -> Programs:
    """The programs, fetched where one of them is missing.

    Raises:
        SetupError: they are not on PATH, and Debian's archive cannot be reached from here.
    """
    found = [shutil.which(name) for name in ("prometheus", "promtool")]
    if found[0] and found[1]:
        return Programs(Path(found[0]), Path(found[1]))
    folder = cachedir.entry(_PACKAGE, cachedir.content_key([_SUITE]), _unpack) / "usr/bin"
    return Programs(folder / "prometheus", folder / "promtool")


def _unpack(folder: Path) -> None:
    with step("fetch Prometheus"):
        packages.unpack(_PACKAGE, suite=_SUITE, into=folder)
