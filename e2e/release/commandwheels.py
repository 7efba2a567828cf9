"""The `gpushare` command as wheels, with the hashes of everything that it needs besides."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from host.errors import SetupError
from images import wheels
from release import charts

_MEMBERS: Final = ("libs/gpucore", "libs/gpukube", "services/inspect")
_VERSION_LINE: Final = re.compile(r'^version = ".*"$', re.MULTILINE)


def write(root: Path, version: str, into: Path) -> None:
    """Build the wheels of this version, and copy the requirement file that goes with them.

    The time of the files is SOURCE_DATE_EPOCH of the environment, which hatchling reads.
    """
    with tempfile.TemporaryDirectory() as folder:
        for member in _MEMBERS:
            wheels.build(_copy(root / member, Path(folder), version), into=into)
    shutil.copyfile(root / "requirements" / "inspect.txt", into / "requirements.txt")


def _copy(member: Path, folder: Path, version: str) -> Path:
    """The member's sources with the version of the release; charts in it have that version too."""
    copy = folder / member.name
    # Links lead out of the member, such as to the serving chart: the copy holds what they name.
    shutil.copytree(member / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    text, count = _VERSION_LINE.subn(
        f'version = "{version}"', (member / "pyproject.toml").read_text()
    )
    if count != 1:
        raise SetupError(f"{member / 'pyproject.toml'} needs exactly one line `version = ...`")
    (copy / "pyproject.toml").write_text(text)
    for chart in copy.rglob("Chart.yaml"):
        chart.write_text(charts.with_version(chart.read_text(), version))
    return copy
