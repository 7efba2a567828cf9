"""Debian packages of any release, fetched by apt without touching the machine's own apt state.

A private apt area in the cache folder names the suites we need at the address the machine itself
uses, checks signatures with Debian's keyring, and is refreshed once a day. Nothing is installed.
Other components than `main` have an area of their own, so that a mirror without them fails only
those who need them.
"""

import os
import time
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.errors import SetupError
from host.fetching import with_retries
from host.progress import step
from offline import aptsources

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_BINARY_SUITES = ("bullseye", "bookworm", "trixie")
_SOURCE_SUITES = ("bookworm", "trixie")
_FREE = "main"
_REFRESH_AFTER_S = 86_400.0


def archive() -> str:
    """The address of the Debian archive this machine is configured with."""
    return aptsources.debian_archive(aptsources.read(), codename=aptsources.codename())


def download(package: str, *, suite: str, into: Path, component: str = _FREE) -> Path:
    """Fetch one binary package of a suite into a folder; the path of the .deb file."""
    options = _area(component)
    _apt_get(*options, "download", f"{package}/{suite}", folder=into)
    return _only(into, f"{package}_*.deb")


def unpack(package: str, *, suite: str, into: Path, component: str = _FREE) -> None:
    """Fetch one binary package and unpack its files below `into`, without installing it."""
    deb = download(package, suite=suite, into=into, component=component)
    run_command(["dpkg-deb", "--extract", deb, into], timeout_s=300)
    deb.unlink()


def unpack_source(package: str, *, suite: str, into: Path) -> None:
    """Fetch the upstream tarball of a source package and unpack it into the folder `into`.

    Debian's own patches are not applied: they are about packaging.
    """
    options = ["--download-only", "--tar-only"]
    into.mkdir(parents=True, exist_ok=True)
    _apt_get(*_area(_FREE), "source", *options, f"{package}/{suite}", folder=into)
    tarball = _only(into, f"{package}_*.orig.tar.*")
    run_command(["tar", "-xf", tarball, "--strip-components=1", "-C", into], timeout_s=300)
    tarball.unlink()


def sources_list(uri: str, component: str = _FREE) -> str:
    """The text of the sources.list of the private area of one component."""
    trust = f"[signed-by={_KEYRING}]"
    binary = [f"deb {trust} {uri} {suite} {component}" for suite in _BINARY_SUITES]
    source = [f"deb-src {trust} {uri} {suite} {component}" for suite in _SOURCE_SUITES]
    return "\n".join([*binary, *(source if component == _FREE else []), ""])


def _area(component: str) -> list[str]:
    """Options that point apt at a component's private area, refreshed when older than a day."""
    name = "apt" if component == _FREE else f"apt-{component}"
    folder = cachedir.root() / name
    options = _options(folder)
    with cachedir.locked(name):
        listing = folder / "sources.list"
        wanted = sources_list(archive(), component)
        fresh = listing.exists() and listing.stat().st_mtime > time.time() - _REFRESH_AFTER_S
        if not fresh or listing.read_text() != wanted:
            _refresh(folder, wanted, options)
    return options


def _refresh(folder: Path, wanted: str, options: list[str]) -> None:
    if not _KEYRING.exists():
        raise SetupError(f"{_KEYRING} is missing: install the package debian-archive-keyring")
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "archives/partial").mkdir(parents=True, exist_ok=True)
    draft = folder / "sources.list.new"
    draft.write_text(wanted)
    with step("read the package lists of Debian's releases"):
        _apt_get(*options, "-o", f"Dir::Etc::sourcelist={draft}", "update", "-q", folder=folder)
    # Named last: a list that could not be read is tried again.
    draft.rename(folder / "sources.list")


def _apt_get(*words: str, folder: Path) -> None:
    with_retries(lambda: run_command(["apt-get", *words], timeout_s=300, cwd=folder))


def _options(folder: Path) -> list[str]:
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache::archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        # apt's sandbox user cannot write below a private home.
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "Acquire::Retries": "5",
        "Acquire::http::Timeout": "60",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SetupError(f"expected one file {pattern} in {folder}, found {len(found)}: retry")
    return found[0]
