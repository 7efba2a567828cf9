"""What pages tell people to type exists: commands, their flags, values of the chart, targets."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from gpuinspect.commands.main import app
from guides.blocks import fences

ROOT = Path(__file__).parents[2]
READMES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("services/*/README.md")]
PAGES = sorted([*READMES, *(ROOT / "docs").rglob("*.md")])
TERMINALS = {"console", "sh", "bash"}
VALUES = yaml.safe_load((ROOT / "helm" / "gpushare" / "values.yaml").read_text())
SPAN = re.compile(r"`([^`\n]+)`")
VALUE = re.compile(rf"(?!scheduler\.framework)({'|'.join(VALUES)})(\.\w+)+(?==|$)")
"""A path into the chart's values; annotations of the second generation look like one."""
PLUGINS = {"kubectl inspect gpushare": "gpushare inspect", "kubectl inspect gpu": "gpushare gpu"}
HELP = {"-h", "--help"}
GENERIC = re.compile(r"[A-Z<{\[|.]")
"""What begins or parts a placeholder."""


def typed(path: Path) -> Iterator[str]:
    """Lines of terminals, without outputs and prompts, and words that stand in code."""
    text = path.read_text()
    for fence in fences(path, text):
        if fence.language in TERMINALS:
            shows = fence.language == "console"
            lines = [line for line in fence.joined if not shows or line.startswith(("$ ", "> "))]
            yield from (re.sub(r"^[$>] ", "", line) for line in lines)
    yield from SPAN.findall(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def calls(line: str) -> Iterator[list[str]]:
    """The calls of our command in a line, as words after its name."""
    for name, same in PLUGINS.items():
        line = re.sub(rf"^{name}(?![\w-])", same, line)
    for piece in re.split(r"[|;&]+ | #", line):
        try:
            words = shlex.split(piece)
        except ValueError:
            continue
        if words[:1] == ["gpushare"]:
            yield words[1:]


def complaint(words: list[str]) -> str | None:
    """Why a call cannot be typed so; None where it can."""
    command: Any = get_command(app)
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        below = command.get_command(typer.Context(command), words[0])
        if below is None:
            return None if GENERIC.search(words[0]) else f"no command {words[0]}"
        command, words = below, words[1:]
    known = {flag for option in command.params for flag in option.opts} | HELP
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    unknown = sorted(used - known)
    return f"no flags {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_call_of_our_command_on_a_page_names_commands_and_flags_it_has(page: Path) -> None:
    """A flag that was renamed must not live on in a page."""
    found = [(words, complaint(words)) for line in typed(page) for words in calls(line)]
    assert [(" ".join(words), why) for words, why in found if why] == []


def test_the_readme_of_the_command_lists_every_command() -> None:
    """Those of `gpushare --help`, each in a row of its table."""
    text = (ROOT / "services" / "inspect" / "README.md").read_text()
    rows = "\n".join(line.split("` |")[0] for line in text.splitlines() if line.startswith("| `"))
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    names = group.list_commands(typer.Context(group))
    assert "doctor" in names
    assert [name for name in names if not re.search(rf"[` ]{name}\b", rows)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_value_of_the_chart_on_a_page_is_one(page: Path) -> None:
    """In code, after ``--set``, alone or with what it is set to."""
    words = [word for line in typed(page) for word in re.split(r"[\s,]+", line)]
    named = {match[0] for word in words if (match := VALUE.match(word))}
    assert [path for path in sorted(named) if not _is_value(path)] == []


def test_every_target_of_make_on_a_page_is_one() -> None:
    """``make`` and a word, in code."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    used = {(page.name, word) for page in PAGES for word in _targets(page)}
    assert len(used) > 5
    assert [pair for pair in sorted(used) if pair[1] not in targets] == []


def _targets(page: Path) -> Iterator[str]:
    for line in typed(page):
        if match := re.match(r"make ([a-z][a-z0-9-]*)", line):
            yield match[1]


def _is_value(path: str) -> bool:
    """Down the defaults; what is below resources or an empty mapping is Kubernetes' own."""
    node: Any = VALUES
    for key in path.partition(".resources.")[0].split("."):
        if not isinstance(node, dict) or (node and key not in node):
            return False
        node = node.get(key)
    return True
