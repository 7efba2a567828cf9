"""An image is built anew when, and only when, something it is made of changed."""

import dataclasses
import platform
from pathlib import Path

import pytest

from images import catalogue
from images.base import Base
from images.catalogue import Image

BASE = Base(name="b:1", id="sha256:1", python="3.11", glibc="2.36", machine="x86_64")


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    """An image of one member with one source file."""
    monkeypatch.setattr(catalogue, "ROOT", tmp_path)
    member = tmp_path / "service"
    (member / "src").mkdir(parents=True)
    (member / "pyproject.toml").write_text("[project]\n")
    (member / "src" / "a.py").write_text("A = 1\n")
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    (tmp_path / "requirements.txt").write_text("a==1\n")
    return Image(
        name="service",
        dockerfile=tmp_path / "Dockerfile",
        requirements=tmp_path / "requirements.txt",
        members=(member,),
    )


def test_unchanged_tree_keeps_the_tag(image: Image) -> None:
    """The tag depends on content alone."""
    assert image.tag(BASE) == image.tag(BASE)
    assert image.tag(BASE).startswith("gpushare/service:")


@pytest.mark.parametrize(
    "file", ["Dockerfile", "requirements.txt", "service/src/a.py", "service/pyproject.toml"]
)
def test_every_ingredient_changes_the_tag(image: Image, tmp_path: Path, file: str) -> None:
    """No edit of what goes into an image leaves the old image in use."""
    before = image.tag(BASE)
    with (tmp_path / file).open("a") as text:
        text.write("# changed\n")
    assert image.tag(BASE) != before


def test_moved_source_changes_the_tag(image: Image, tmp_path: Path) -> None:
    """The same content under another name is another image."""
    before = image.tag(BASE)
    source = tmp_path / "service" / "src"
    (source / "a.py").rename(source / "b.py")
    assert image.tag(BASE) != before


def test_other_base_changes_the_tag(image: Image) -> None:
    """A base image that moved under its name is noticed by its id."""
    assert image.tag(dataclasses.replace(BASE, id="sha256:2")) != image.tag(BASE)


def test_compiled_files_do_not_count(image: Image, tmp_path: Path) -> None:
    """Running the tests does not make an image stale."""
    before = image.tag(BASE)
    cache = tmp_path / "service" / "src" / "__pycache__"
    cache.mkdir()
    (cache / "a.pyc").write_bytes(b"0")
    assert image.tag(BASE) == before


def test_linked_folders_count(image: Image, tmp_path: Path) -> None:
    """What a member's package holds by a link, such as a chart, is in its wheel and in the tag."""
    chart = tmp_path / "chart"
    chart.mkdir()
    (chart / "values.yaml").write_text("a: 1\n")
    (tmp_path / "service" / "src" / "chart").symlink_to(chart)
    before = image.tag(BASE)
    (chart / "values.yaml").write_text("a: 2\n")
    assert image.tag(BASE) != before


def test_copied_files_count(image: Image, tmp_path: Path) -> None:
    """A file that the Dockerfile copies changes the tag."""
    file = tmp_path / "server.py"
    file.write_text("A = 1\n")
    copying = dataclasses.replace(image, files=(file,))
    before = copying.tag(BASE)
    file.write_text("A = 2\n")
    assert copying.tag(BASE) != before


def test_catalogue_names_files_that_exist() -> None:
    """Each image has its Dockerfile, its locked requirements and its members in the tree."""
    for entry in catalogue.ALL:
        assert entry.dockerfile.is_file()
        assert entry.requirements is None or entry.requirements.is_file()
        assert all(file.is_file() for file in entry.files)
        assert all((member / "pyproject.toml").is_file() for member in entry.members)


def test_an_image_for_another_architecture_is_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tag ends with the architecture, which a release keeps."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    other = dataclasses.replace(BASE, id="sha256:2", machine="aarch64")
    assert catalogue.EXTENDER.tag(other).endswith("-arm64")
    assert "-" not in catalogue.EXTENDER.tag(BASE).partition(":")[2]
