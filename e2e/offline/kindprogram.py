"""The program `kind`: compiled from its Go module, else Debian's package, installed."""

import shutil
import tempfile
from pathlib import Path

from host import cachedir
from host.errors import SetupError
from host.privilege import as_root, can_be_root
from host.progress import step
from offline import goprograms, gotoolchain, packages

_SUITE = "trixie"
_PROJECT = "sigs.k8s.io/kind"


def pinned() -> str:
    """The version that is compiled here, without its `v`."""
    return goprograms.pinned("kind", _PROJECT)


def ensure() -> Path:
    """A kind: the pinned one where its Go module can be had, else the one on PATH or Debian's.

    Raises SetupError where none is here or to be had.
    """
    if goprograms.obtainable(f"{_PROJECT}@v{pinned()}"):
        return _compiled()
    found = shutil.which("kind")
    if found is None:
        _install()
        found = shutil.which("kind")
    if found is None:
        raise SetupError("Debian's package kind is installed but /usr/bin is not on PATH: add it")
    return Path(found)


def _compiled() -> Path:
    key = cachedir.content_key([gotoolchain.VERSION], goprograms.inputs("kind"))
    return cachedir.entry("kind", key, _compile) / "kind"


def _compile(folder: Path) -> None:
    with step("compile kind"):
        goprograms.compile_module(goprograms.MODULES / "kind", into=folder)


def _install() -> None:
    if not can_be_root():
        raise SetupError(
            "kind is not on PATH and installing it needs root or passwordless sudo: install kind "
            "(a package from Debian trixie on) and put it on PATH"
        )
    with (
        step("install kind"),
        cachedir.locked("tools"),
        tempfile.TemporaryDirectory(dir=cachedir.root()) as folder,
    ):
        as_root(["dpkg", "--install", _package(Path(folder))], timeout_s=120)


def _package(folder: Path) -> Path:
    try:
        return packages.download("kind", suite=_SUITE, into=folder)
    except SetupError as error:
        raise SetupError(
            f"kind is not on PATH and its package was not found ({error}): install kind and put "
            "it on PATH"
        ) from error
