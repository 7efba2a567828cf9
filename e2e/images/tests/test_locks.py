"""The requirement files of the images follow from the members, by hash and without an address."""

import re
import tomllib

import pytest

from images.catalogue import DEVICE_PLUGIN, EXTENDER, INSPECT, ROOT, Image

LOCAL = {"gpucore", "gpukube", "gpuprobe"}
SERVICES = (EXTENDER, DEVICE_PLUGIN, INSPECT)
ENTRY = re.compile(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", re.MULTILINE)


def locked(name: str) -> dict[str, str]:
    """Versions by package of a requirement file."""
    return dict(ENTRY.findall((ROOT / "requirements" / name).read_text()))


@pytest.mark.parametrize("image", SERVICES, ids=lambda image: image.name)
def test_every_dependency_is_locked(image: Image) -> None:
    """A dependency that a member gained is in its image's file, or `make lock` was forgotten."""
    wanted = set()
    for member in image.members:
        project = tomllib.loads((member / "pyproject.toml").read_text())["project"]
        wanted |= {re.split(r"[\[<>=~! ;]", text)[0] for text in project["dependencies"]}
    assert wanted - LOCAL <= set(locked(f"{image.name}.txt"))


@pytest.mark.parametrize("image", SERVICES, ids=lambda image: image.name)
def test_images_run_what_the_tests_ran(image: Image) -> None:
    """No image has another version of a package than the environment of the repository."""
    assert locked(f"{image.name}.txt").items() <= locked("dev.txt").items()


@pytest.mark.parametrize("name", ["dev", "uv", *(image.name for image in SERVICES)])
def test_locks_have_hashes_and_no_address(name: str) -> None:
    """Each entry has a hash; where packages come from is this machine's matter."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    entries = [part for part in re.split(r"\n(?=\S)", text.strip()) if part]
    assert entries
    assert [part for part in entries if "--hash=sha256:" not in part] == []
