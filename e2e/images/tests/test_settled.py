"""What is taken out of an image's configuration, and that nothing else is."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from images import settled

EPOCH = 1_767_225_600
TIME = "2026-01-01T00:00:00Z"
LAYERS = (b"ground", b"own", b"ground")
NAME = "gpushare/extender:1"


def config(*, second: int) -> dict[str, Any]:
    """As the engine's builder writes it, at a second of a day and in some container."""
    time = f"2026-11-21T12:00:{second:02}.5Z"
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": time,
        "container": f"{second:064x}",
        "container_config": {"Hostname": f"{second:012x}", "Cmd": ["/bin/sh"]},
        "docker_version": "20.10.24",
        "config": {
            "Hostname": "",
            "Image": f"sha256:{second:064x}",
            "User": "65532:65532",
            "Env": ["PATH=/bin"],
            "Entrypoint": ["gpushare-extender"],
        },
        "history": [
            {"created": time, "created_by": "COPY ground"},
            {"created": time, "created_by": "ENTRYPOINT", "empty_layer": True},
        ],
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in LAYERS],
        },
    }


def saved(file: Path, found: dict[str, Any]) -> Path:
    """An archive as `docker save` writes it: a layer that occurs again is a link."""
    content = {"c.json": json.dumps(found).encode()}
    content |= {f"{number}/layer.tar": layer for number, layer in enumerate(LAYERS[:2])}
    manifest = [
        {
            "Config": "c.json",
            "RepoTags": ["gpushare/extender:1-built"],
            "Layers": [f"{number}/layer.tar" for number in range(len(LAYERS))],
        }
    ]
    content["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(file, "w") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("2/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../0/layer.tar"
        archive.addfile(link)
    return file


def read(file: Path) -> dict[str, bytes]:
    """Every file of an archive."""
    with tarfile.open(file) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


@pytest.fixture
def rewritten(tmp_path: Path) -> Path:
    """The archive of an image, settled."""
    result = tmp_path / "settled.tar"
    settled.rewrite(saved(tmp_path / "built.tar", config(second=1)), result, NAME, EPOCH)
    return result


def test_two_builds_make_one_archive(tmp_path: Path, rewritten: Path) -> None:
    """Another moment and another container leave not a byte behind."""
    again = tmp_path / "again.tar"
    settled.rewrite(saved(tmp_path / "other.tar", config(second=2)), again, NAME, EPOCH)
    assert again.read_bytes() == rewritten.read_bytes()


def test_the_id_is_that_of_the_configuration(rewritten: Path) -> None:
    """The engine names an image after its configuration, so the archive must say so too."""
    files = read(rewritten)
    (manifest,) = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == [NAME]
    assert manifest["Config"] == f"{hashlib.sha256(files[manifest['Config']]).hexdigest()}.json"


def test_what_runs_is_untouched(rewritten: Path) -> None:
    """User, environment, entry point, layers and the words of the history are as they were."""
    files = read(rewritten)
    (manifest,) = json.loads(files["manifest.json"])
    assert tuple(files[layer] for layer in manifest["Layers"]) == LAYERS
    found, before = json.loads(files[manifest["Config"]]), config(second=1)
    assert {*before["config"]} - {*found["config"]} == {"Hostname", "Image"}
    assert found["config"].items() <= before["config"].items()
    assert found["rootfs"] == before["rootfs"]
    assert [each["created_by"] for each in found["history"]] == ["COPY ground", "ENTRYPOINT"]


def test_there_is_one_time(rewritten: Path) -> None:
    """Image and history bear the time of the files, and nothing of the build's own."""
    files = read(rewritten)
    (manifest,) = json.loads(files["manifest.json"])
    found = json.loads(files[manifest["Config"]])
    assert {found["created"], *(each["created"] for each in found["history"])} == {TIME}
    assert "2026-11-21" not in json.dumps(found)
    assert {"container", "container_config", "docker_version"} & set(found) == set()


def test_a_changed_layer_or_command_is_another_image(tmp_path: Path, rewritten: Path) -> None:
    """What distinguishes images still does."""
    other = config(second=1)
    other["config"]["User"] = "0:0"
    result = tmp_path / "other.tar"
    settled.rewrite(saved(tmp_path / "changed.tar", other), result, NAME, EPOCH)
    first, second = (json.loads(read(each)["manifest.json"]) for each in (rewritten, result))
    assert first[0]["Config"] != second[0]["Config"]


def test_the_architecture_is_that_of_the_content() -> None:
    """The engine names its own, also where it built with an emulator; unnamed it stays."""
    emulated = settled.configuration(config(second=1), EPOCH, architecture="arm64")
    assert emulated["architecture"] == "arm64"
    assert settled.configuration(config(second=1), EPOCH)["architecture"] == "amd64"
