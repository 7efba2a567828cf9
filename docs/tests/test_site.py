"""The site builds without a warning, leads nowhere wrong and fetches nothing from elsewhere."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from sitebuild import build
from sitelinks import Page, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the site is built in the first
ROOT = Path(__file__).parents[2]
LARGEST_IMAGE = 400_000
"""Bytes; pages are read over slow lines too."""


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site but the server's answer to a wrong address, which is not linked."""
    found = {path: read(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(found) > 10
    return found


def test_every_link_within_the_site_leads_to_a_page_and_an_anchor_that_are_there(
    site: Path, pages: dict[Path, Page]
) -> None:
    """Also links that themes and tables of contents add."""
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            there = pages.get(target)
            if not target.is_file() or (parts.fragment and _lacks(there, parts.fragment)):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


@pytest.mark.parametrize(
    ("pages", "complaints"),
    [
        (
            {
                "index.md": "# Here\n\n[there](gone.md) [and there](index.md#gone)",
                "orphan.md": "# Alone",
            },
            [
                'not included in the "nav" configuration:\n  - orphan.md',
                "'gone.md'.* not found among documentation files",
                "'index.md#gone'.* no such anchor",
            ],
        ),
        ({}, ["'index.md'.* not found in the documentation files"]),
    ],
    ids=["pages", "menu"],
)
def test_the_builder_refuses_a_site_with_a_mistake(
    tmp_path: Path, pages: dict[str, str], complaints: list[str]
) -> None:
    """A page that the menu lacks, a link or a menu entry to nothing: strict mode counts each."""
    (tmp_path / "docs").mkdir()
    for name, text in pages.items():
        (tmp_path / "docs" / name).write_text(f"{text}\n")
    wrong = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "nav": [{"Here": "index.md"}]}
    wrong |= {"hooks": []}  # their paths are relative to the file
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(wrong))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    for complaint in complaints:
        assert re.search(f"^WARNING .*{complaint}", done.stderr, re.MULTILINE), done.stderr


def test_make_docs_does_not_silence_the_builder() -> None:
    """With --quiet no warning is counted, and strict mode finds nothing."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    [line] = [line for line in lines if "mkdocs build" in line]
    assert "--strict" in line
    assert "--quiet" not in line


def test_the_menu_names_each_page_once() -> None:
    """Pages that it leaves out are the builder's business, which warns of them."""
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"(\S+\.md)$", menu, re.MULTILINE)
    assert len(named) > 10
    assert sorted(named) == sorted(set(named))


def test_each_page_states_how_long_it_takes_to_read(site: Path, pages: dict[Path, Page]) -> None:
    """Below its title."""
    lacking = [
        str(path.relative_to(site))
        for path in pages
        if not re.search(r"</h1>\s*<p><em>\d+ min to read</em></p>", path.read_text())
    ]
    assert lacking == []


def test_links_to_elsewhere_are_well_formed(pages: dict[Path, Page]) -> None:
    """Over TLS, with a host; whether it answers is nobody's business in a test."""
    outside = {link for page in pages.values() for link in page.links if urlsplit(link).scheme}
    shape = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/\S*)?|mailto:\S+@\S+")
    assert [link for link in sorted(outside) if not shape.fullmatch(link)] == []


def test_a_reader_fetches_nothing_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Neither pages nor styles name a script, style, font or picture of another host.

    The theme's script would fetch a library for drawings in the text, so there are none.
    """
    assert not [path for path in pages if 'class="mermaid"' in path.read_text()]
    fetched = {target for page in pages.values() for target in page.fetched}
    assert [target for target in fetched if urlsplit(target).netloc] == []
    for style in site.rglob("*.css"):
        targets = re.findall(r"url\(([^)]*)\)|@import\s+(\S+)", style.read_text())
        assert not [pair for pair in targets if "//" in "".join(pair)[:8]], style


def test_pictures_are_no_larger_than_they_need_be(site: Path) -> None:
    """A page of pictures would be one that nobody opens at night."""
    pictures = [path for end in ("png", "jpg", "svg") for path in site.rglob(f"*.{end}")]
    assert [path for path in pictures if path.stat().st_size > LARGEST_IMAGE] == []


def _lacks(page: Page | None, anchor: str) -> bool:
    return page is None or unquote(anchor) not in page.anchors
