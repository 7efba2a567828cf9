"""The command as a plugin of krew: an archive for each architecture, and the manifest over them."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

PLUGIN: Final = "gpushare"
"""Name of the plugin and of its manifest: `kubectl gpushare`."""
_LICENSE: Final = "LICENSE"
_MODES: Final = {PLUGIN: 0o755, _LICENSE: 0o644}


def archive(program: Path, root: Path, epoch: int) -> Path:
    """Write `<program>.tar.gz` with the program and the license, all of one time; its path."""
    path = program.with_name(f"{program.name}.tar.gz")
    contents = {PLUGIN: program.read_bytes(), _LICENSE: (root / _LICENSE).read_bytes()}
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as files,
    ):
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), epoch, _MODES[name]
            files.addfile(member, io.BytesIO(content))
    return path


def write(archives: Mapping[str, Path], version: str, downloads: str, into: Path) -> Path:
    """Write the manifest; krew requires that its file has the name of the plugin.

    Args:
        archives: by architecture, as Go spells it.
        version: of the release.
        downloads: URL of the folder in which the archives are published.
        into: an existing folder.
    """
    path = into / f"{PLUGIN}.yaml"
    platforms = [
        _platform(name, file, f"{downloads}/{file.name}") for name, file in archives.items()
    ]
    path.write_text(yaml.safe_dump(_manifest(version, platforms), sort_keys=False, width=80))
    return path


def _platform(architecture: str, file: Path, uri: str) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
        "uri": uri,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "files": [{"from": name, "to": "."} for name in _MODES],
        "bin": PLUGIN,
    }


def _manifest(version: str, platforms: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Show GPU shares and why pods wait for them",
            "description": "Shows which pod holds which share of a GPU, explains why a pod is\n"
            "pending, and tries where new pods would be placed.\n",
            "caveats": "The plugin needs Python 3.11, 3.12 or 3.13 as python3.\n",
            "platforms": platforms,
        },
    }
