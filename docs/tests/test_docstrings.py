"""Docstrings describe the parameters that exist: a renamed one is renamed there too."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^Args:\n((?: {4,}.*\n?|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Iterator[Path]:
    """Every module of the product, but for generated ones."""
    for path in sorted([*ROOT.glob("libs/*/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")]):
        if "proto" not in path.parts:
            yield path


def described(node: ast.AST) -> list[str]:
    """Names below `Args:` in the docstring of a function or class."""
    assert isinstance(node, Function | ast.ClassDef)
    section = SECTION.search(ast.get_docstring(node) or "")
    entries = ENTRY.findall(section.group(1)) if section else []
    return [name.lstrip("*") for entry in entries for name in entry.split(", ")]


def parameters(node: ast.AST) -> set[str]:
    """Names that a function takes, or that the construction of a class takes."""
    if isinstance(node, ast.ClassDef):
        fields = {
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        made = [each for each in node.body if isinstance(each, Function)]
        return fields.union(*(parameters(each) for each in made if each.name == "__init__"))
    assert isinstance(node, Function)
    given = node.args
    names = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return {each.arg for each in names if each}


def stale(text: str) -> list[str]:
    """`where: name` for each name that a docstring describes and nothing takes."""
    return [
        f"{node.name}: {name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function) or (isinstance(node, ast.ClassDef) and not node.bases)
        for name in described(node)
        if name not in parameters(node)
    ]


@pytest.mark.slow
def test_a_docstring_describes_no_parameter_that_is_not_there() -> None:
    """In all modules of the product."""
    assert {
        str(path.relative_to(ROOT)): found
        for path in sources()
        if (found := stale(path.read_text(encoding="utf-8")))
    } == {}


def test_a_renamed_parameter_is_noticed() -> None:
    """Of a function and of a class."""
    function = 'def f(new):\n    """Do.\n\n    Args:\n        old: it.\n    """\n'
    made = "    def __init__(self, new):\n        pass\n"
    class_ = f'class C:\n    """It.\n\n    Args:\n        old: it.\n    """\n\n{made}'
    assert stale(function + class_) == ["f: old", "C: old"]
