"""Debian packages of any release, fetched by apt without touching the machine's own apt state.

A private apt area in the cache folder names the suites we need at the address the machine itself
uses, checks signatures with Debian's keyring, and is refreshed once a day. Nothing is installed.
"""

import os
import time
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.errors import SetupError
from host.progress import step
from offline import aptsources

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_BINARY_SUITES = ("bullseye", "bookworm", "trixie")
_SOURCE_SUITES = ("bookworm", "trixie")
_REFRESH_AFTER_S = 86_400.0


def archive() -> str:
    """The address of the Debian archive this machine is configured with."""
    return aptsources.debian_archive(aptsources.read(), codename=aptsources.codename())


def download(package: str, *, suite: str, into: Path) -> Path:
    """Fetch one binary package of a suite into a folder; the path of the .deb file."""
    options = _area()
    run_command(["apt-get", *options, "download", f"{package}/{suite}"], timeout_s=300, cwd=into)
    return _only(into, f"{package}_*.deb")


def unpack(package: str, *, suite: str, into: Path) -> None:
    """Fetch one binary package and unpack its files below `into`, without installing it."""
    deb = download(package, suite=suite, into=into)
    run_command(["dpkg-deb", "--extract", deb, into], timeout_s=300)
    deb.unlink()


def unpack_source(package: str, *, suite: str, into: Path) -> None:
    """Fetch the upstream tarball of a source package and unpack it into the folder `into`.

    Debian's own patches are not applied: they are about packaging.
    """
    options = ["--download-only", "--tar-only"]
    into.mkdir(parents=True, exist_ok=True)
    run_command(
        ["apt-get", *_area(), "source", *options, f"{package}/{suite}"], timeout_s=300, cwd=into
    )
    tarball = _only(into, f"{package}_*.orig.tar.*")
    run_command(["tar", "-xf", tarball, "--strip-components=1", "-C", into], timeout_s=300)
    tarball.unlink()


def sources_list(uri: str) -> str:
    """The text of the private area's sources.list."""
    trust = f"[signed-by={_KEYRING}]"
    binary = [f"deb {trust} {uri} {suite} main" for suite in _BINARY_SUITES]
    source = [f"deb-src {trust} {uri} {suite} main" for suite in _SOURCE_SUITES]
    return "\n".join([*binary, *source, ""])


def _area() -> list[str]:
    """Options that point apt at the private area, refreshed when it is older than a day."""
    folder = cachedir.root() / "apt"
    options = _options(folder)
    with cachedir.locked("apt"):
        listing = folder / "sources.list"
        wanted = sources_list(archive())
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
        run_command(
            ["apt-get", *options, "-o", f"Dir::Etc::sourcelist={draft}", "update", "-q"],
            timeout_s=300,
        )
    # Named last: a list that could not be read is tried again.
    draft.rename(folder / "sources.list")


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
