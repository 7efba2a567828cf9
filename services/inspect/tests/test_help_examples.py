"""The examples in help texts: each command has some, and each line can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from invoking import Run
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gpuinspect.commands.main import app

HEADING: Final = re.compile(r"^Examples?:\n((?:  .*\n?)+)", re.MULTILINE)
OPERATORS: Final = re.compile(r"[|&;<>()]+")
ON_THIS_MACHINE: Final = {"dashboard", "install-scheduler", "uninstall-scheduler"}
"""Commands that do more than fail where there is no cluster."""


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command and group that help lists, by its words."""
    if not command.hidden:
        yield path, command
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), f"{path} {name}".strip())


ALL: Final = dict(commands(get_command(app)))


def examples(path: str) -> list[str]:
    """The lines below ``Examples:`` in the help of a command."""
    found = HEADING.search(f"{ALL[path].help or ''}\n\n{ALL[path].epilog or ''}")
    return found[1].replace("\\\n", "").splitlines() if found else []


def calls(line: str) -> Iterator[list[str]]:
    """The calls of our command in a line of a shell, as words after its name."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    call: list[str] = []
    for word in [*words, ";"]:
        if not OPERATORS.fullmatch(word):
            call.append(word)
            continue
        if call[:1] == ["gpushare"]:
            yield call[1:]
        call = []


LINES: Final = [(path, line.strip()) for path in ALL for line in examples(path)]


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_examples(path: str) -> None:
    """A person who types ``--help`` finds a line to begin with, and it is one of that command."""
    typed = [" ".join(words) for line in examples(path) for words in calls(line)]
    assert any(f"{words} ".startswith(f"{path} ".lstrip()) for words in typed)


@pytest.mark.parametrize(("path", "line"), LINES)
def test_every_example_can_be_typed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, line: str
) -> None:
    """The parser takes the commands, options and arguments of a line, and no check refuses them."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    typed = list(calls(line))
    assert typed
    if path in ON_THIS_MACHINE:
        monkeypatch.setattr(TyperCommand, "invoke", lambda *_: None)
    for words in typed:
        assert run(*words).code != 2
