"""``-o``: the forms an answer can take, and the two that programs read."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer


class Format(StrEnum):
    """Values of ``-o`` and ``--output``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Output = Annotated[Format, typer.Option("-o", "--output", help="form of the answer")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="rows only, for scripts")]


def names_only(kind: str, names: Iterable[str]) -> None:
    """Print ``kind/name`` lines, which ``xargs kubectl`` takes."""
    sys.stdout.writelines(f"{kind}/{name}\n" for name in names)


def emit(document: Any, form: Format) -> None:
    """Print ``document``, a value msgspec can encode, as JSON or YAML."""
    if form is Format.YAML:
        import yaml  # noqa: PLC0415 - takes as long to import as all the rest, and few ask for it

        yaml.safe_dump(msgspec.to_builtins(document), sys.stdout, sort_keys=False)
        return
    raw = msgspec.json.format(msgspec.json.encode(document), indent=2)
    sys.stdout.write(raw.decode() + "\n")
