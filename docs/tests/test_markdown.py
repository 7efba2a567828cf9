"""Pages read the same in the repository and on the site, whose Markdown is stricter about lists."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1]
PAGES = sorted(DOCS.rglob("*.md"))
FRONT = DOCS / "index.md"
ITEM = re.compile(r" *([-*]|\d+\.) ")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines outside of fences, with their numbers; a fence counts as an empty line."""
    inside = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        edge = line.lstrip().startswith("```")
        inside = inside != edge
        yield number, "" if inside or edge else line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_has_one_title_and_it_comes_first(page: Path) -> None:
    """The site takes the page's name from it."""
    titles = [number for number, line in prose(page) if line.startswith("# ")]
    assert titles == [1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_lists_begin_after_an_empty_line_and_go_on_four_spaces_in(page: Path) -> None:
    """Else the site runs them into the paragraph before, or ends them at the next one."""
    wrong = []
    for (_, before), (number, line) in pairwise(prose(page)):
        plain = before.strip() and not before.startswith(" ") and not ITEM.match(before)
        if plain and ITEM.match(line):
            wrong.append(f"line {number}: a list without an empty line before it")
        if not before.strip() and re.match(r" {1,3}\S", line) and not ITEM.match(line):
            wrong.append(f"line {number}: goes on fewer than four spaces in")
    assert wrong == []


def test_every_page_is_named_by_another_page() -> None:
    """A reader who does not look at the menu finds it too."""
    named = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())
        if (page.parent / link).resolve() != page
    }
    assert [str(page.relative_to(DOCS)) for page in PAGES if page not in named | {FRONT}] == []


@pytest.mark.parametrize("name", ["threat-model.md", "topology.md"])
def test_a_long_page_begins_with_ten_lines(name: str) -> None:
    """Whoever reads no further knows what to do."""
    _, summary = (DOCS / name).read_text().split("## In short\n", 1)
    points = re.findall(r"^- .+$", summary.partition("\n## ")[0], re.MULTILINE)
    assert 5 <= len(points) <= 10
    assert all(len(point) <= 140 for point in points)
