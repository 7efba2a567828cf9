"""Which version is released, from which commit, and to which registry; a mistake is refused."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from host.commands import run_command
from host.errors import SetupError

_GIT_SECONDS: Final = 60
_NUMBER: Final = r"(0|[1-9]\d*)"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-(alpha|beta|rc)\.{_NUMBER})?")
_HOST: Final = re.compile(r"localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|[a-z0-9-]+(?=:)")
_REGISTRY: Final = re.compile(rf"({_HOST.pattern})(:\d{{1,5}})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_DOWNLOADS: Final = re.compile(rf"https://({_HOST.pattern})(:\d{{1,5}})?(/[\w.~%+-]+)*")
_LOOPBACK: Final = re.compile(r"(localhost|127(\.\d{1,3}){3})(:\d+)?(/.*)?")


@dataclass(frozen=True, kw_only=True)
class Commit:
    """What is released.

    Attributes:
        id: full hash.
        epoch: time of the commit in seconds; every artefact bears it.
    """

    id: str
    epoch: int


def semantic_version(text: str) -> str:
    """The version; SetupError for a text that is none.

    Build metadata (`+...`) is no part of an image tag, and Python's wheels know no other
    pre-releases than alpha, beta and rc.
    """
    if not _VERSION.fullmatch(text):
        raise SetupError(
            f"VERSION={text!r} is no semantic version: give one such as 0.2.0 or 0.2.0-rc.1"
        )
    return text


def registry_path(text: str) -> str:
    """The registry without a slash at its end; SetupError for a text that names no host."""
    registry = text.rstrip("/")
    if not _REGISTRY.fullmatch(registry):
        raise SetupError(
            f"REGISTRY={text!r} is no registry: give a host with an optional path, such as "
            "registry.example.com/gpu"
        )
    return registry


def downloads_url(text: str) -> str:
    """The URL without a slash at its end; SetupError for a text that krew could not download."""
    url = text.rstrip("/")
    if not _DOWNLOADS.fullmatch(url):
        raise SetupError(
            f"DOWNLOADS={text!r} is no address of a folder: give one such as "
            "https://downloads.example.com/gpushare/0.2.0"
        )
    return url


def is_loopback(registry: str) -> bool:
    """True for a registry on this machine, which Docker and we reach by plain HTTP."""
    return _LOOPBACK.fullmatch(registry) is not None


def clean_commit(root: Path) -> Commit:
    """The commit that is checked out; SetupError where files differ from it."""
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        raise SetupError(
            f"the working tree differs from its commit in {changed[0][3:]}"
            f"{f' and {len(changed) - 1} more' if changed[1:] else ''}: commit or remove it first"
        )
    return head(root)


def head(root: Path) -> Commit:
    """The commit that is checked out, whatever changed since."""
    found, time = _git(root, "log", "-1", "--format=%H %ct").split()
    return Commit(id=found, epoch=int(time))


def _git(root: Path, *words: str) -> str:
    return run_command(["git", "-C", root, *words], timeout_s=_GIT_SECONDS)
