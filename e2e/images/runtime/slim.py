"""Takes away what no service needs from the root file system it runs in.

Runs once, with the base image's own Python, while the runtime image is built. Packages go with
their files and their entry in dpkg's list, so that the list stays true for scanners. What is left
keeps a shell, coreutils, grep, sed and tar: somebody may have to look around at night. Afterwards
every file has one time, and Python's own files are compiled for any time of their sources.
"""

import compileall
import os
import py_compile
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = frozenset(
    """
    adduser apt bash bsdutils debconf debian-archive-keyring diffutils dpkg e2fsprogs findutils gpgv
    init-system-helpers libapt-pkg6.0 libaudit-common libaudit1 libblkid1 libcap-ng0 libdb5.3
    libdebconfclient0 libext2fs2 libgcrypt20 libgnutls30 libgpg-error0 libhogweed6 libidn2-0
    liblz4-1 libmount1 libnettle8 libnsl2 libp11-kit0 libpam-modules libpam-modules-bin
    libpam-runtime libpam0g libseccomp2 libsemanage-common libsemanage2 libsepol2 libsmartcols1
    libss2 libsystemd0 libtasn1-6 libtirpc-common libtirpc3 libudev1 libunistring2 libxxhash0 login
    logsave mawk mount ncurses-bin passwd perl-base python3-distutils python3-lib2to3
    python3-pip-whl python3-setuptools-whl python3-venv python3.11-venv sysvinit-utils tzdata
    usr-is-merged util-linux util-linux-extra
    """.split()  # noqa: SIM905 - names, not code
)
"""Not needed to run Python, TLS or a shell; a base that lacks one simply has nothing to lose."""

TREES = (
    "usr/share/bug",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/zoneinfo",
    "var/cache",
    "var/lib/apt",
    "var/log",
)
PYTHON_PARTS = (
    "config-*",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages/pip*",
    "test",
    "tkinter",
    "turtledemo",
    "lib-dynload/_dbm.*",
    "lib-dynload/_test*",
    "lib-dynload/nis.*",
    "lib-dynload/xx*",
)
PROGRAMS = ("usr/local/bin/idle*", "usr/local/bin/pip*", "usr/local/bin/pydoc*")
"""Of a Python that no package brought, as in the official images."""

PYTHONS = ("usr/lib/python3.*", "usr/local/lib/python3.*")


def slim(root: Path, epoch: int) -> None:
    """Remove, compile and date everything below ``root``; ``epoch`` in seconds."""
    remove_packages(root)
    for tree in TREES:
        empty(root / tree)
    for pattern in PROGRAMS:
        for path in root.glob(pattern):
            remove(path)
    remove_documents(root / "usr/share/doc")
    for python in pythons(root):
        for part in PYTHON_PARTS:
            for path in python.glob(part):
                remove(path)
        compile_all(python)
    date(root, epoch)


def remove_packages(root: Path) -> None:
    """Take away the packages' files and what dpkg knows of them."""
    info, status = root / "var/lib/dpkg/info", root / "var/lib/dpkg/status"
    kept = []
    for stanza in status.read_text().split("\n\n"):
        name = stanza.partition("\n")[0].removeprefix("Package: ")
        if name not in PACKAGES:
            kept.append(stanza)
            continue
        for listing in [*info.glob(f"{name}.*"), *info.glob(f"{name}:*")]:
            if listing.suffix == ".list":
                remove_listed(root, listing)
            listing.unlink()
    status.write_text("\n\n".join(kept))
    remove(status.with_name("status-old"))


def remove_listed(root: Path, listing: Path) -> None:
    """Take away the files of one package; folders stay, since others may use them.

    So do links to folders: with a merged /usr every package lists ``/bin`` and ``/lib``.
    """
    for line in listing.read_text().splitlines():
        path = root / line.lstrip("/")
        if not path.is_dir():
            path.unlink(missing_ok=True)


def remove_documents(folder: Path) -> None:
    """Leave nothing of the documents but the copyright of what is still here."""
    for path in [path for path in folder.rglob("*") if path.name != "copyright"]:
        if path.is_symlink() or path.is_file():
            path.unlink()


def pythons(root: Path) -> Iterator[Path]:
    """Folders of the standard library, whoever installed it."""
    for pattern in PYTHONS:
        yield from root.glob(pattern)


def remove(path: Path) -> None:
    """Take away a file or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def empty(folder: Path) -> None:
    """Take away all that is in a folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        remove(path)


def compile_all(folder: Path) -> None:
    """Compile a library so that the times of its sources do not matter.

    Also without docstrings, since the device plugin runs with ``PYTHONOPTIMIZE=2``: it would else
    compile what it imports at every start.
    """
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for level in (0, 2):
        compileall.compile_dir(folder, quiet=2, force=True, invalidation_mode=mode, optimize=level)


def date(root: Path, epoch: int) -> None:
    """Give everything one time; other file systems below ``root`` are left alone."""
    device = root.stat().st_dev
    for name, folders, files in os.walk(root, topdown=True):
        here = Path(name)
        folders[:] = [each for each in folders if (here / each).lstat().st_dev == device]
        for each in [*files, *folders]:
            path = here / each
            if path.lstat().st_dev == device:
                os.utime(path, (epoch, epoch), follow_symlinks=False)


if __name__ == "__main__":
    slim(Path(sys.argv[1]), int(sys.argv[2]))
