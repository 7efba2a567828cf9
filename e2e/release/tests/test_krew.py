"""The manifest for krew keeps the rules by which krew and its index accept a plugin."""

import hashlib
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from host.errors import SetupError
from release import krew
from release.version import downloads_url, semantic_version

FORBIDDEN = re.compile(r"(con|prn|aux|nul|(com|lpt)[1-9])", re.IGNORECASE)
PLATFORMS = {("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64")}


def archives(folder: Path) -> dict[str, Path]:
    """An archive for each architecture, of programs that differ."""
    (folder / "LICENSE").write_text("Apache\n")
    found = {}
    for name in ("amd64", "arm64"):
        program = folder / f"gpushare-linux-{name}"
        program.write_text(f"#!/bin/sh\necho {name}\n")
        found[name] = krew.archive(program, folder, 1_790_000_000)
    return found


def manifest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The manifest of version 0.2.0-rc.1 as a file, and its content."""
    path = krew.write(archives(folder), "0.2.0-rc.1", "https://example.com/gpu/0.2.0", folder)
    return path, yaml.safe_load(path.read_text())


def test_the_plugin_has_a_safe_name_and_its_file_has_it_too(tmp_path: Path) -> None:
    """Kind, API version and names as krew's validation wants them."""
    path, found = manifest(tmp_path)
    name = found["metadata"]["name"]
    assert found["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (found["kind"], path.name) == ("Plugin", f"{name}.yaml")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert not FORBIDDEN.fullmatch(name)
    assert not name.startswith(("kube", "kubectl"))


def test_version_and_texts_fit(tmp_path: Path) -> None:
    """The version begins with v; the short description is one line of at most 50 characters."""
    spec = manifest(tmp_path)[1]["spec"]
    assert spec["version"][0] == "v"
    assert semantic_version(spec["version"][1:])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    lines = [*spec["description"].splitlines(), *spec["caveats"].splitlines()]
    assert all(len(line) <= 80 for line in lines)


def test_every_platform_is_selected_once(tmp_path: Path) -> None:
    """By operating system and architecture alone; no two platforms select the same machine."""
    selected = [p["selector"] for p in manifest(tmp_path)[1]["spec"]["platforms"]]
    assert all(each.keys() == {"matchLabels"} for each in selected)
    assert all(each["matchLabels"].keys() == {"os", "arch"} for each in selected)
    pairs = [tuple(each["matchLabels"].values()) for each in selected]
    assert len(pairs) == len(set(pairs)) == 2
    assert set(pairs) <= PLATFORMS


def test_each_platform_installs_its_archive(tmp_path: Path) -> None:
    """The digest is that of the archive, and each file of the list is in it, the program too."""
    for platform in manifest(tmp_path)[1]["spec"]["platforms"]:
        file = tmp_path / platform["uri"].rpartition("/")[2]
        assert platform["uri"].startswith("https://example.com/gpu/0.2.0/gpushare-linux-")
        assert platform["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        with tarfile.open(file) as archive:
            modes = {member.name: member.mode for member in archive}
        assert {step["from"] for step in platform["files"]} == modes.keys()
        assert {step["to"] for step in platform["files"]} == {"."}
        assert modes[platform["bin"]] == 0o755


def test_equal_programs_give_equal_archives(tmp_path: Path) -> None:
    """Their digests stand in a manifest that others review."""
    digests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        digests.append({k: v.read_bytes() for k, v in archives(tmp_path / name).items()})
    assert digests[0] == digests[1]


@pytest.mark.parametrize("text", ["http://example.com", "example.com/x", "https://", "https://x y"])
def test_an_address_that_krew_cannot_download_from_is_refused(text: str) -> None:
    """With one sentence, before anything is built."""
    with pytest.raises(SetupError, match="no address of a folder"):
        downloads_url(text)
