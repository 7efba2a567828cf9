"""The structure of the packages: one meaning a name, no import cycle."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src")])
FILES = {
    file: source
    for source in SOURCES
    for file in source.rglob("*.py")
    if "proto" not in file.parts  # generated
}
E2E = [file for file in (ROOT / "e2e").rglob("*.py") if "tests" not in file.parts]


def modules() -> dict[str, Path]:
    """All modules of the packages by their dotted name."""
    found = {}
    for file, source in FILES.items():
        name = ".".join(file.relative_to(source).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = file
    return found


def imported(file: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of ours that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)


def test_a_public_class_name_has_one_definition() -> None:
    """Searching for a name finds one meaning."""
    places = defaultdict(list)
    for file in [*FILES, *E2E]:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.parent.name)
def test_no_module_imports_itself_over_others(source: Path) -> None:
    """Not even within a function: a cycle cannot be read in any order."""
    known = modules()
    order = TopologicalSorter[str]()
    for name, file in known.items():
        if FILES[file] == source and file.name != "__init__.py":
            order.add(name, *(one for one in imported(file, known) if one in known and one != name))
    order.prepare()


@pytest.mark.parametrize("folder", ["e2e", "helm", "libs", "services"])
def test_no_fixture_of_a_whole_session_changes_the_environment(folder: str) -> None:
    """Tests of other folders run in the same process and reach servers with real certificates."""
    files = list((ROOT / folder).rglob("conftest.py"))
    assert files
    for node in chain.from_iterable(ast.walk(ast.parse(file.read_text())) for file in files):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "scope='session'" in decorators:
                assert "setenv" not in ast.unparse(node), node.name
