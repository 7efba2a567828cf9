"""The files that a call passes, as ARCHITECTURE.md lists them, import in one direction."""

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADING = "## Follow a call of kubelet, and a command"
FILES_OF_A_WALK = 12
WALKS = {
    "Allocate",
    "NodePrepareResources",
    "gpushare inspect",
    "gpushare explain pod",
    "gpushare whatif",
}
SOURCES = [*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src")]


def walks() -> dict[str, list[str]]:
    """The files of each table below the heading, by the name of the call."""
    _, section = (ROOT / "ARCHITECTURE.md").read_text().split(f"{HEADING}\n", 1)
    found: dict[str, list[str]] = {}
    for line in section.partition("\n## ")[0].splitlines():
        if row := re.match(r"\| `([^`]+)` \|", line):
            found[list(found)[-1]].append(row[1])
        elif call := re.match(r"`([^`]+)`.*:$", line):
            found[call[1]] = []
    return found


def imports_of(file: str) -> set[str]:
    """The files that a file imports, wherever in it the import is."""
    (path,) = (source / file for source in SOURCES if (source / file).is_file())
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {f"{name.replace('.', '/')}.py" for name in names}
    return found


def test_the_walks_are_found() -> None:
    """A changed heading would leave the other tests without a case."""
    assert walks().keys() >= WALKS


@pytest.mark.parametrize("call", walks())
def test_a_walk_has_at_most_a_dozen_files(call: str) -> None:
    """A newcomer can read all of them."""
    assert 2 < len(walks()[call]) <= FILES_OF_A_WALK


@pytest.mark.parametrize("call", walks())
def test_a_walk_never_goes_back_up(call: str) -> None:
    """No file imports one that is above it in the table."""
    files = walks()[call]
    assert not [(b, a) for a, b in combinations(files, 2) if a in imports_of(b)]


@pytest.mark.parametrize("call", walks())
def test_each_file_of_a_walk_is_imported_by_one_above_it(call: str) -> None:
    """A moved step cannot stay in the table."""
    files = walks()[call]
    reached = {files[0]}.union(*map(imports_of, files))
    assert set(files) <= reached
