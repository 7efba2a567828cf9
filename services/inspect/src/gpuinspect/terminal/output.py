"""Text for a terminal of some width, or for a pipe: its tables, and sentences wrapped to its width.

Tables are as Go's ``text/tabwriter`` aligns them (padding 2, spaces, no flags). The originals print
through it, and scripts cut their output by column, so its rules are kept to the letter: a column is
a run of *consecutive* lines that have that tab-terminated cell; it is as wide as its longest cell
plus the padding; text after a line's last tab belongs to no column and is not padded. Widths are
counted in code points. No table is fitted to a terminal here.

Tenants write text that the API server does not validate, such as a scheduler's name or the kind of
an owner: no cell and no sentence has control characters, which a terminal would obey.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, TextIO

PADDING: Final = 2
LEAST: Final = 40
"""Texts are not wrapped on narrower terminals."""


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal that a stream (standard output) is; ``None`` for a pipe or file."""
    written = sys.stdout if stream is None else stream
    return shutil.get_terminal_size().columns if written.isatty() else None


def obeys(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that obeys control sequences; a dumb one shows them."""
    smart = os.environ.get("TERM") not in {None, "", "dumb"}
    return smart and stream is not None and stream.isatty()


def colourful() -> bool:
    """Whether to use colours: on a terminal that has them, without NO_COLOR."""
    return obeys(sys.stdout) and "NO_COLOR" not in os.environ


def shows(characters: str) -> bool:
    """Whether standard output can encode these characters."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def align(text: str) -> str:
    """``text`` with every tab-terminated cell padded to its column's width.

    Args:
        text: lines that end in a newline, cells that end in a tab.
    """
    lines = [list(map(plain, line.split("\t"))) for line in text.split("\n")]
    widths: list[list[int]] = [[] for _ in lines]
    _measure(lines, widths, range(len(lines)), column=0)
    return "\n".join(_padded(*pair) for pair in zip(lines, widths, strict=True))


def align_rows(rows: Iterable[Iterable[str]]) -> str:
    """A table of rows of cells; the last column is not padded. No cell begins a row or another."""
    return align("".join("\t".join(map(plain, row)) + "\n" for row in rows))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], *, headers: bool = True) -> str:
    """As :func:`align_rows`, below a row of heads unless ``headers`` is false."""
    return align_rows([heads, *rows] if headers else rows)


def _measure(
    lines: Sequence[Sequence[str]], widths: list[list[int]], block: range, *, column: int
) -> None:
    """Give every line of ``block`` the width of its cell in ``column`` and to the right of it."""
    for run in _runs(lines, block, column):
        widest = max(len(lines[row][column]) for row in run) + PADDING
        for row in run:
            widths[row].append(widest)
        _measure(lines, widths, run, column=column + 1)


def _runs(lines: Sequence[Sequence[str]], block: range, column: int) -> Iterable[range]:
    """The maximal runs of consecutive lines in ``block`` whose cell in ``column`` ends in a tab."""
    start: int | None = None
    for row in block:
        if column < len(lines[row]) - 1:
            start = row if start is None else start
        elif start is not None:
            yield range(start, row)
            start = None
    if start is not None:
        yield range(start, block.stop)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=True)]
    return "".join([*padded, cells[-1]])


def wrapped(text: str, width: int | None, *, indent: int = 0) -> str:
    """One line, or several of at most ``width`` with the later ones indented; ends in a newline.

    Args:
        text: a line break in it counts as a space.
        width: of the terminal; ``None`` where there is none, and nothing is wrapped.
        indent: spaces before the later lines.
    """
    text = plain(text)
    if width is None or width < LEAST or len(text) < width:
        return f"{text}\n"
    lines = textwrap.wrap(text, width - 1, subsequent_indent=" " * indent, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """The text without line breaks, without control characters and without runs of spaces."""
    return " ".join(plain(text).split())


def plain(text: str) -> str:
    """The text with a space in place of each line break and each control character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def plain_json(text: str) -> str:
    """The same JSON with escapes for what standard output may lack and what a terminal obeys.

    JSON has escapes for U+0000 to U+001F alone: U+009B begins a control sequence as well, and
    others change the order in which a line is shown.
    """
    return "\n".join(map(_plain_line, text.split("\n")))


def _plain_line(line: str) -> str:
    shown = shows(line)
    if shown and line.isprintable():
        return line
    return "".join(c if c.isprintable() and (shown or c.isascii()) else _escaped(c) for c in line)


def _escaped(character: str) -> str:
    """As JSON: by the units of its UTF-16."""
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
