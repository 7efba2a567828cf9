"""Writes docs/reference/commands.md: every flag of every program, read from the programs.

What a flag means is said where it is defined, and only there. Nothing is promised about programs of
other people, nor about flags of `make` targets.
"""
# ruff: noqa: INP001 - a script beside the page, no package

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from gpudeviceplugin.settings import Settings as PluginSettings
from gpuextender.settings import Settings as ExtenderSettings
from gpuinspect.cli.main import app

PAGE = Path(__file__).resolve().parents[1] / "reference" / "commands.md"
HEAD: Final = """\
# Commands and flags

Every flag of the three programs. Made by `python docs/generators/commandpage.py` from the programs
themselves; `--help` says the same. Where a flag has a variable, the flag goes before the variable
and the variable before the default.

`kubectl inspect gpushare` takes what `gpushare inspect` takes, and `kubectl inspect gpu` what
`gpushare gpu` takes.
"""
TABLE: Final = "| flag | variable | default | meaning |\n|---|---|---|---|\n"
READING: Final = "And the [flags of commands that read](#flags-of-commands-that-read)."
SERVICES: Final = (
    ("gpushare-extender", ExtenderSettings),
    ("gpushare-device-plugin", PluginSettings),
)


def page() -> str:
    """The page as it should be."""
    commands = dict(_commands(get_command(app), "gpushare"))
    rows = {path: _rows(command) for path, command in commands.items()}
    seen = Counter(row for listed in rows.values() for row in listed)
    reading = [row for row, times in seen.items() if 2 * times > len(commands)]
    parts = [HEAD, *(_service(name, settings) for name, settings in SERVICES)]
    parts.append(f"## Flags of commands that read\n\n{TABLE}{''.join(reading)}")
    parts += [_command(path, commands[path], rows[path], reading) for path in commands]
    return "\n".join(parts)


def _service(program: str, settings: type[BaseSettings]) -> str:
    prefix = settings.model_config.get("env_prefix", "")
    rows = (_setting(name, field, prefix) for name, field in settings.model_fields.items())
    return f"## {program}\n\n{TABLE}{''.join(rows)}"


def _setting(name: str, field: FieldInfo, prefix: str) -> str:
    alias = field.validation_alias
    variable = (alias if isinstance(alias, str) else f"{prefix}{name}").upper()
    choices = _choices(field.annotation)
    meaning = field.description or ""
    if any(word not in meaning for word in choices):
        meaning += f" ({', '.join(choices)})"
    flag = f"`--{name.replace('_', '-')}`"
    return _row(flag, f"`{variable}`", _default(field.default), meaning)


def _choices(annotation: Any) -> list[str]:
    """The words a setting may take, where it takes words of a list."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member.value) for member in annotation]
    found = get_args(annotation)
    return list(found) if found and all(isinstance(word, str) for word in found) else []


def _commands(command: Any, path: str) -> Iterator[tuple[str, TyperCommand]]:
    """A command, or all below a group, with the words that call them; none that help hides."""
    if isinstance(command, TyperCommand):
        if not command.hidden:
            yield path, command
    elif isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), f"{path} {name}")


def _rows(command: TyperCommand) -> list[str]:
    options = [option for option in command.params if isinstance(option, TyperOption)]
    context = typer.Context(command)
    return [_option(option, context) for option in options if not option.hidden]


def _command(path: str, command: TyperCommand, rows: Sequence[str], reading: Sequence[str]) -> str:
    """A section: how it is called, what it does, the flags of its own."""
    usage = " ".join(command.collect_usage_pieces(typer.Context(command)))
    said = " ".join((command.help or "").split("\f")[0].split())
    own = [row for row in rows if row not in reading]
    table = f"\n{TABLE}{''.join(own)}" if own else ""
    more = f"\n{READING}\n" if len(rows) > len(own) else ""
    return f"## {path}\n\n`{path} {usage}`\n\n{said}\n{table}{more}"


def _option(option: TyperOption, context: typer.Context) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        flags += f" `{option.make_metavar(context).replace('|', ', ')}`"
    default = "required" if option.required else _default(option.default)
    return _row(flags, _words(option.envvar), default, option.help or "")


def _words(names: str | Iterable[str] | None) -> str:
    listed = [names] if isinstance(names, str) else list(names or ())
    return ", ".join(f"`{name}`" for name in listed)


def _default(value: Any) -> str:
    """A default as it would be typed; nothing for off and none."""
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, tuple | list):
        value = ",".join(str(item) for item in value)
    if value is None or value is False or value == "" or callable(value):
        return ""
    return f"`{'on' if value is True else value}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
