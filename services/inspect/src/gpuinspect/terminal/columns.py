"""``-o custom-columns=NAME:.path,...``: a table of chosen fields of a document."""

from collections.abc import Sequence
from typing import Any, Final

from gpuinspect.terminal.jsonpath import JsonPathError, joined, select
from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import one_line

MISSING: Final = "<none>"


def table(specification: str, document: Any) -> str:
    """A line for each of the document's items, or one line for a document without items.

    Raises:
        JsonPathError: a column cannot be read.
    """
    columns = [_column(text) for text in specification.split(",")]
    items = document.get("items", [document]) if isinstance(document, dict) else [document]
    rows = [[name for name, _ in columns], *(_row(columns, item) for item in items)]
    return align("".join("\t".join(row) + "\n" for row in rows))


def _column(text: str) -> tuple[str, str]:
    name, colon, path = text.partition(":")
    if not (name and colon and path.strip()):
        raise JsonPathError(f"{text!r} is not NAME:.path")
    return one_line(name), path


def _row(columns: Sequence[tuple[str, str]], item: Any) -> list[str]:
    return [one_line(joined(select(path, item), ",")) or MISSING for _, path in columns]
