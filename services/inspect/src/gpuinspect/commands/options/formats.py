"""``-o``: the output formats, and the documents that programs read."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from gpuinspect.terminal.output import plain, plain_json


class AnyFormat(StrEnum):
    """What the output formats of all commands have in common."""

    @property
    def is_document(self) -> bool:
        """Whether the output is the command's document."""
        return self in {"json", "yaml"}


class Format(AnyFormat):
    """Value of ``-o`` and ``--output``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Output = Annotated[Format, typer.Option("-o", "--output", help="output format")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="omit the header row")]


def names_only(kind: str, names: Iterable[str]) -> None:
    """Print ``kind/name`` lines, which ``xargs kubectl`` takes."""
    sys.stdout.writelines(f"{kind}/{plain(name)}\n" for name in names)


def emit(document: Any, form: AnyFormat) -> None:
    """Print ``document``, a value msgspec can encode, as YAML, else as JSON."""
    if form == Format.YAML:
        import yaml  # noqa: PLC0415 - its import takes as long as all the rest, and few commands
        # need it

        yaml.safe_dump(msgspec.to_builtins(document, str_keys=True), sys.stdout, sort_keys=False)
    else:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
        sys.stdout.write(plain_json(text) + "\n")
