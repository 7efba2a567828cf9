"""The Go that compiles the cluster's programs: the version that Kubernetes itself is released with.

Any Go on PATH that can fetch other versions of itself (1.21 or newer) will do, else Debian's.
Another minor version than the release's may compile and still fail: Go 1.27 breaks the OpenAPI of
an API server of Kubernetes 1.36.
"""

import re
import shutil
from functools import cache
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.errors import SetupError
from host.progress import step
from offline import packages

VERSION = "1.26.8"
_FETCHES_ITSELF = (1, 21)
_SUITE = "trixie"
_DEBIAN = "1.24"


@cache
def ensure() -> Path:
    """A go command, from PATH or from Debian's packages, unpacked and not installed."""
    found = shutil.which("go")
    if found and version(found) >= _FETCHES_ITSELF:
        return Path(found)
    key = cachedir.content_key([_SUITE, _DEBIAN])
    return cachedir.entry("go-debian", key, _unpack) / f"usr/lib/go-{_DEBIAN}/bin/go"


def choice() -> str:
    """The value of GOTOOLCHAIN: the Go at hand if it fits, else the one to fetch."""
    here, wanted = version(ensure()), tuple(map(int, VERSION.split(".")))
    fits = here[:2] == wanted[:2] and here >= wanted
    return "local" if fits else f"go{VERSION}"


@cache
def version(go: Path | str) -> tuple[int, ...]:
    """The version of a go command; (0,) where it reports none."""
    try:
        # Of this version itself, not of one that a setting of the machine would fetch.
        text = run_command([go, "env", "GOVERSION"], timeout_s=60, env={"GOTOOLCHAIN": "local"})
    except SetupError:
        return (0,)
    match = re.match(r"go(\d+(?:\.\d+)*)", text)
    return tuple(map(int, match[1].split("."))) if match else (0,)


def _unpack(folder: Path) -> None:
    with step(f"fetch Go {_DEBIAN}"):
        for package in (f"golang-{_DEBIAN}-go", f"golang-{_DEBIAN}-src"):
            packages.unpack(package, suite=_SUITE, into=folder)
