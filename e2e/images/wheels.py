"""The wheels an image is made of: fetched on this machine, or built from the workspace's members.

Fetching happens here because containers may not trust, or not reach, the package index that this
machine is set up with. Every fetched wheel is checked against the hashes of the requirement file;
the wheels of the members get their own hashes, so that an image installs nothing unchecked.
"""

import hashlib
import sys
from pathlib import Path

from host import cachedir
from host.commands import run_command
from host.fetching import with_retries
from host.progress import step
from images.base import Base

_FETCH_TIMEOUT_S = 600
_BUILD_TIMEOUT_S = 120


def fetch(requirements: Path, base: Base) -> Path:
    """The folder with the wheels of a requirement file for a base image, kept in the cache."""
    key = cachedir.content_key([base.python, base.glibc, base.machine], [requirements])

    def fill(folder: Path) -> None:
        with step(f"fetch the wheels of {requirements.name} for Python {base.python}"):
            command = download_command(requirements, base, into=folder)
            with_retries(lambda: run_command(command, timeout_s=_FETCH_TIMEOUT_S))

    return cachedir.entry("wheels", key, fill)


def download_command(requirements: Path, base: Base, *, into: Path) -> list[str]:
    """The pip command that fetches wheels for another interpreter than this one."""
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--implementation=cp"),
        f"--python-version={base.python}",
        *(f"--platform={platform}" for platform in base.platforms()),
        f"--dest={into}",
        f"--requirement={requirements}",
    ]


def build(member: Path, *, into: Path) -> Path:
    """Build a member's wheel, reproducibly and without fetching a build backend."""
    before = set(into.glob("*.whl"))
    command = [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={into}"]
    run_command(
        command, cwd=member, timeout_s=_BUILD_TIMEOUT_S, env={"PYTHONDONTWRITEBYTECODE": "1"}
    )
    (wheel,) = set(into.glob("*.whl")) - before
    return wheel


def requirement(wheel: Path) -> str:
    """The line that makes pip install this very file and no other of its name."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"./members/{wheel.name} --hash=sha256:{digest}"
