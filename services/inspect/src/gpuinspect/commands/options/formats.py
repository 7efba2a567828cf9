"""``-o``: the output formats, and the documents that programs read."""

import sys
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Final

import msgspec
import typer

JSONPATH: Final = "jsonpath="
COLUMNS: Final = "custom-columns="


class Format(str):
    """Value of ``-o`` and ``--output``: a name, or an expression over the JSON document."""

    __slots__ = ()
    TABLE: ClassVar["Format"]
    WIDE: ClassVar["Format"]
    JSON: ClassVar["Format"]
    YAML: ClassVar["Format"]
    NAME: ClassVar["Format"]

    @property
    def is_document(self) -> bool:
        """Whether the output is made of the command's document."""
        return self in {Format.JSON, Format.YAML} or self.startswith((JSONPATH, COLUMNS))


Format.TABLE, Format.WIDE, Format.JSON, Format.YAML, Format.NAME = NAMES = tuple(
    map(Format, ("table", "wide", "json", "yaml", "name"))
)
FORMS: Final = (*NAMES, f"{JSONPATH}TEMPLATE", f"{COLUMNS}NAME:.PATH,...")


def parsed(text: str) -> Format:
    """The format of a text; names give the constants of :class:`Format`.

    Raises:
        typer.BadParameter: there is no such format.
    """
    found = next((each for each in NAMES if each == text), Format(text))
    if found not in NAMES and not found.is_document:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(FORMS)}")
    return found


def _candidates(incomplete: str) -> list[str]:
    names = [*NAMES, JSONPATH, COLUMNS]
    return [each for each in names if each.startswith(incomplete)]


Output = Annotated[
    Format,
    typer.Option(
        "-o",
        "--output",
        parser=parsed,
        metavar="FORMAT",
        autocompletion=_candidates,
        help=f"output format: {', '.join(FORMS)}",
    ),
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="omit the header row")]


def names_only(kind: str, names: Iterable[str]) -> None:
    """Print ``kind/name`` lines, which ``xargs kubectl`` takes."""
    sys.stdout.writelines(f"{kind}/{name}\n" for name in names)


def emit(document: Any, form: Format) -> None:
    """Print ``document``, a value msgspec can encode, as JSON or YAML, or fields of it.

    Raises:
        typer.BadParameter: the expression of the format cannot be read.
    """
    if form is Format.YAML:
        import yaml  # noqa: PLC0415 - its import takes as long as all the rest, and few commands
        # need it

        yaml.safe_dump(msgspec.to_builtins(document), sys.stdout, sort_keys=False)
    elif form is Format.JSON:
        raw = msgspec.json.format(msgspec.json.encode(document), indent=2)
        sys.stdout.write(raw.decode() + "\n")
    else:
        sys.stdout.write(_selected(msgspec.to_builtins(document), form))


def _selected(document: Any, form: Format) -> str:
    from gpuinspect.terminal import columns, jsonpath  # noqa: PLC0415 - few commands need them

    try:
        if form.startswith(COLUMNS):
            return columns.table(form.removeprefix(COLUMNS), document)
        return jsonpath.render(form.removeprefix(JSONPATH), document)
    except jsonpath.JsonPathError as error:
        raise typer.BadParameter(f"-o {form}: {error}") from error
