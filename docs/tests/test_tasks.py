"""A new user finds each task from the first page, and what the page has to type exists.

The five tasks without a cluster are run command by command with their outputs by `test_guides.py`.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from test_commands import calls, complaint, typed

from guides.blocks import Command, Guide, GuideTarget, found

DOCS = Path(__file__).parents[1]
ROW = re.compile(
    r"^\| (?P<task>[^|]+) \| \[[^]]+\]\((?P<link>[^)]+)\) \| `(?P<text>[^`]+)` \|$", re.MULTILINE
)
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
"""Within lists too."""
REQUIRED = (
    "find why my pod waits",
    "see what my team uses",
    "install the command",
    "offer the GPUs of a node",
    "stop using it",
)
"""Tasks that users were observed to have; the page has more."""
PLACEHOLDERS = re.compile(r" (NAME|-f POD\.yaml|--snapshot \S+)$")
OFFLINE_TASKS = ("inspect", "pending", "explain pod", "usage", "whatif")


class Task(NamedTuple):
    """A row of the first page."""

    name: str
    page: Path
    anchor: str
    text: str


def tasks() -> list[Task]:
    """The table of the first page."""
    rows = ROW.finditer((DOCS / "index.md").read_text())
    parted = [(row["task"], *row["link"].partition("#"), row["text"]) for row in rows]
    return [Task(name, DOCS / page, anchor, text) for name, page, _, anchor, text in parted]


def heading(text: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w-]+", "-", text.lower().replace(",", "")).strip("-")


def test_the_first_page_has_every_task() -> None:
    """No row is lost when the table is edited."""
    assert set(REQUIRED) <= {task.name for task in tasks()}
    assert len(tasks()) >= 12


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_a_task_leads_to_a_section_that_shows_how(task: Task) -> None:
    """The text to type is in code on that page, which has the section that the link names."""
    text = task.page.read_text()
    sections = {heading(line) for line in headings(text)}
    assert not task.anchor or task.anchor in sections
    words = PLACEHOLDERS.sub("", task.text)
    shown = "\n".join((*typed(task.page), *FENCE.findall(text)))
    assert words in shown
    assert not list(filter(None, (complaint(words) for words in calls(task.text))))


def headings(text: str) -> list[str]:
    """The headings, without comments within fences."""
    return re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)


@pytest.mark.parametrize("words", OFFLINE_TASKS)
def test_every_offline_task_shows_its_whole_output(words: str) -> None:
    """Real outputs to compare with: no dots stand in for a part of them."""
    [tour] = [guide for guide in found(DOCS, GuideTarget.OFFLINE) if guide.path.stem == "tour"]
    commands = [each for each in shown_by(tour) if each.text.startswith(f"gpushare {words}")]
    assert commands
    assert all(each.expected and not any("..." in x for x in each.expected) for each in commands)


def shown_by(guide: Guide) -> list[Command]:
    """The commands of a page."""
    return [step for step in guide.steps if isinstance(step, Command)]
