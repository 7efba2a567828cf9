"""The charts as Helm packages: equal sources, version and time make equal bytes."""

import gzip
import io
import os
import re
import tarfile
from pathlib import Path
from typing import Final

from host.commands import run_command
from host.errors import SetupError

_GIT_SECONDS: Final = 60
_VERSION_LINE: Final = re.compile(r"^(version|appVersion): .*$", re.MULTILINE)


def package(chart: Path, version: str, epoch: int, into: Path) -> Path:
    """Write `<chart>-<version>.tgz` with every file of the chart that git tracks; its path.

    Args:
        chart: folder with Chart.yaml.
        version: of the chart, and of the images it installs.
        epoch: the time that all files bear, in seconds; the package too, because `helm push`
            writes that time into the manifest.
        into: an existing folder.
    """
    path = into / f"{chart.name}-{version}.tgz"
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in _files(chart):
            content = (chart / name).read_bytes()
            if name == "Chart.yaml":
                content = with_version(content.decode(), version).encode()
            _add(archive, f"{chart.name}/{name}", content, epoch)
    os.utime(path, (epoch, epoch))
    return path


def with_version(text: str, version: str) -> str:
    """Chart.yaml with another version and appVersion; SetupError where it lacks one of them."""
    changed, count = _VERSION_LINE.subn(rf"\1: {version}", text)
    if count != 2:
        raise SetupError("Chart.yaml needs exactly one line with version and one with appVersion")
    return changed


def _files(chart: Path) -> list[str]:
    """Paths below the chart's folder, Chart.yaml first as in Helm's own packages."""
    listed = run_command(["git", "-C", chart, "ls-files", "-z"], timeout_s=_GIT_SECONDS)
    return sorted(listed.rstrip("\0").split("\0"), key=lambda name: (name != "Chart.yaml", name))


def _add(archive: tarfile.TarFile, name: str, content: bytes, epoch: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(content), epoch, 0o644
    archive.addfile(member, io.BytesIO(content))
