"""Docstrings describe parameters and attributes that exist: a renamed one is renamed there too."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRIES = r"\n((?: {4,}.*\n?|\n)+)"
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Iterator[Path]:
    """Every module of the product, but for generated ones."""
    for path in sorted([*ROOT.glob("libs/*/src/**/*.py"), *ROOT.glob("services/*/src/**/*.py")]):
        if "proto" not in path.parts:
            yield path


def described(node: ast.AST, title: str) -> list[str]:
    """Names below `Args:` or `Attributes:` in the docstring of a function or class."""
    assert isinstance(node, Function | ast.ClassDef)
    text = ast.get_docstring(node) or ""
    section = re.search(f"^{title}:{ENTRIES}", text, re.MULTILINE)
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


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """Names of fields, methods, and what methods assign."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr
        elif isinstance(each, Function):
            yield each.name


def stale(text: str) -> list[str]:
    """`where: name` for each name that a docstring describes and nothing takes or has."""
    return [
        f"{node.name}: {name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function | ast.ClassDef)
        for name in [*_stale_parameters(node), *_stale_attributes(node)]
    ]


def _stale_parameters(node: Function | ast.ClassDef) -> Iterator[str]:
    """The construction of a class with bases may take what a base takes."""
    if isinstance(node, Function) or not node.bases:
        yield from (name for name in described(node, "Args") if name not in parameters(node))


def _stale_attributes(node: Function | ast.ClassDef) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        known = set(attributes(node))
        yield from (name for name in described(node, "Attributes") if name not in known)


@pytest.mark.slow
def test_a_docstring_describes_nothing_that_is_not_there() -> None:
    """In all modules of the product."""
    assert {
        str(path.relative_to(ROOT)): found
        for path in sources()
        if (found := stale(path.read_text(encoding="utf-8")))
    } == {}


def test_a_renamed_attribute_is_noticed() -> None:
    """A field, a property and what a method assigns are attributes; another name is reported."""
    fields = "    a: int\n\n    @property\n    def b(self):\n        self.c = 1\n"
    text = "a: it.\n        b: it.\n        c: it.\n        d: it."
    class_ = f'class C(Base):\n    """It.\n\n    Attributes:\n        {text}\n    """\n\n{fields}'
    assert stale(class_) == ["C: d"]


def test_a_renamed_parameter_is_noticed() -> None:
    """Of a function and of a class."""
    function = 'def f(new):\n    """Do.\n\n    Args:\n        old: it.\n    """\n'
    made = "    def __init__(self, new):\n        pass\n"
    class_ = f'class C:\n    """It.\n\n    Args:\n        old: it.\n    """\n\n{made}'
    assert stale(function + class_) == ["f: old", "C: old"]
