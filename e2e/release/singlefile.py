"""The `gpushare` command as one executable file a processor architecture: a zipapp made by shiv.

The file holds the wheels of the requirement file for several versions of Python side by side:
native modules have the version in their names. At its first run it unpacks itself to `~/.shiv`.
"""

import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from host.architecture import Architecture
from host.commands import run_command
from host.errors import SetupError
from images import wheels
from images.base import Base

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Debian 12, Ubuntu 24.04 and Debian 13."""
_GLIBC: Final = "2.28"
_ENTRY: Final = "gpuinspect.commands.main:from_one_file"
_TIMEOUT_S: Final = 300


def write(wheel: Path, requirements: Path, into: Path, architecture: Architecture) -> Path:
    """Write `gpushare-linux-<architecture>`; equal wheels and SOURCE_DATE_EPOCH give equal bytes.

    Args:
        wheel: of the command.
        requirements: everything else, with hashes.
        into: an existing folder.
        architecture: of the processors that the file runs on.

    Raises:
        SetupError: a wheel cannot be had, or two of them differ where they must not.
    """
    path = into / f"gpushare-linux-{architecture.name}"
    with tempfile.TemporaryDirectory() as name:
        site = Path(name)
        for each in [wheel, *_fetched(requirements, architecture)]:
            _unpack(each, site)
        run_command(_shiv(site, path), timeout_s=_TIMEOUT_S)
    path.chmod(0o755)
    return path


def _fetched(requirements: Path, architecture: Architecture) -> list[Path]:
    folders = [
        wheels.fetch(
            requirements,
            Base(name="", id="", python=python, glibc=_GLIBC, machine=architecture.machine),
        )
        for python in PYTHONS
    ]
    return sorted(each for folder in folders for each in folder.glob("*.whl"))


def _unpack(wheel: Path, site: Path) -> None:
    """Add the modules of a wheel; those that are there already must be the same."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            folder = name.partition("/")[0]
            if name.endswith("/") or folder.endswith(".data"):
                continue
            target, content = site / name, archive.read(name)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            elif target.read_bytes() != content and not folder.endswith(".dist-info"):
                raise SetupError(f"{wheel.name} has another {name} than the wheels before it")


def _shiv(site: Path, path: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "shiv", "--compressed", "--reproducible"),
        *("--python", "/usr/bin/env python3", "--entry-point", _ENTRY),
        *("--site-packages", str(site), "--output-file", str(path)),
    ]
