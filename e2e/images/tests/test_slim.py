"""What the runtime image loses, and what it must keep, on a small root file system of its own."""

import sys
from pathlib import Path

import pytest

from images.runtime import slim

EPOCH = 1_767_225_600
STATUS = """\
Package: coreutils
Status: install ok installed
Version: 9.1-1

Package: perl-base
Status: install ok installed
Version: 5.36.0-7
Description: minimal Perl system
 Perl is a scripting language.

Package: dash
Status: install ok installed
Version: 0.5.12-2
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with three packages, a merged /usr and a Python."""
    texts = {
        "var/lib/dpkg/status": STATUS,
        "var/lib/dpkg/info/perl-base.list": "/.\n/bin\n/usr/bin\n/usr/bin/perl\n/usr/bin/gone\n",
        "var/lib/dpkg/info/perl-base.md5sums": "x\n",
        "var/lib/dpkg/info/dash.list": "/.\n/bin\n/usr/bin/dash\n",
        "usr/bin/perl": "",
        "usr/bin/dash": "",
        "usr/share/man/man1/dash.1.gz": "",
        "usr/share/doc/dash/copyright": "free",
        "usr/share/doc/dash/changelog.gz": "",
        "var/cache/apt/pkgcache.bin": "",
        "usr/local/bin/pip3": "",
        "usr/lib/python3.11/json.py": "A = 1\n",
        "usr/lib/python3.11/ensurepip/__init__.py": "",
        "usr/lib/python3.11/lib-dynload/_testcapi.so": "",
        "usr/lib/python3.11/lib-dynload/_ssl.so": "",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "bin").symlink_to("usr/bin")
    return tmp_path


def test_what_no_service_needs_goes(root: Path) -> None:
    """Packages, caches, manuals and Python's own tests are gone."""
    slim.slim(root, EPOCH)
    gone = [
        "usr/bin/perl",
        "var/cache/apt",
        "usr/share/man/man1",
        "usr/share/doc/dash/changelog.gz",
    ]
    gone += [
        "usr/local/bin/pip3",
        "usr/lib/python3.11/ensurepip",
        "usr/lib/python3.11/lib-dynload/_testcapi.so",
    ]
    assert [name for name in gone if (root / name).exists()] == []


def test_what_is_needed_stays(root: Path) -> None:
    """A shell, the merged /usr, the library and the copyright of what is left are there."""
    slim.slim(root, EPOCH)
    assert (root / "bin/dash").exists()
    assert (root / "bin").is_symlink()
    assert (root / "usr/lib/python3.11/lib-dynload/_ssl.so").exists()
    assert (root / "usr/share/doc/dash/copyright").read_text() == "free"


def test_the_list_of_packages_stays_true(root: Path) -> None:
    """A scanner finds the packages that are left, whole, and none that is gone."""
    slim.slim(root, EPOCH)
    status = (root / "var/lib/dpkg/status").read_text()
    assert status == STATUS.replace(
        STATUS[STATUS.index("Package: perl") : STATUS.index("Package: dash")], ""
    )
    assert not list((root / "var/lib/dpkg/info").glob("perl-base*"))
    assert (root / "var/lib/dpkg/info/dash.list").exists()


def test_everything_has_one_time(root: Path) -> None:
    """Files, folders and links are of one date, so that equal inputs make equal layers."""
    slim.slim(root, EPOCH)
    assert {int(path.lstat().st_mtime) for path in root.rglob("*")} == {EPOCH}


def test_compiled_files_do_not_look_at_times(root: Path) -> None:
    """The compiled library is bound to content: flags 1 means a hash that is not checked."""
    slim.slim(root, EPOCH)
    compiled = list((root / "usr/lib/python3.11/__pycache__").glob("json.*.pyc"))
    assert {int.from_bytes(file.read_bytes()[4:8], "little") for file in compiled} == {1}


def test_no_start_compiles_the_standard_library(root: Path) -> None:
    """The device plugin runs without docstrings, which is another compiled file; others with."""
    slim.slim(root, EPOCH)
    files = (root / "usr/lib/python3.11/__pycache__").glob("json.*.pyc")
    compiled = sorted(file.suffixes[-2] for file in files)
    assert compiled == [
        f".{sys.implementation.cache_tag}",
        ".opt-2",
    ]
