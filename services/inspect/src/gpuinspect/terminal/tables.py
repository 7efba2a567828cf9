"""Text tables aligned as Go's ``text/tabwriter`` aligns them (padding 2, spaces, no flags).

The originals print through it, and scripts cut their output by column, so its rules are kept to the
letter: a column is a run of *consecutive* lines that have that tab-terminated cell; it is as wide
as its longest cell plus the padding; text after a line's last tab belongs to no column and is not
padded. Widths are counted in code points. Nothing here fits a table to a terminal.
"""

from collections.abc import Iterable, Sequence
from typing import Final

PADDING: Final = 2


def align(text: str) -> str:
    """``text`` with every tab-terminated cell padded to its column's width.

    Args:
        text: lines that end in a newline, cells that end in a tab.
    """
    lines = [line.split("\t") for line in text.split("\n")]
    widths: list[list[int]] = [[] for _ in lines]
    _measure(lines, widths, range(len(lines)), column=0)
    return "\n".join(_padded(*pair) for pair in zip(lines, widths, strict=True))


def _measure(
    lines: Sequence[Sequence[str]], widths: list[list[int]], block: range, *, column: int
) -> None:
    """Give every line of ``block`` the width of its cell in ``column`` and to the right of it."""
    for run in _runs(lines, block, column):
        width = max(len(lines[row][column]) for row in run) + PADDING
        for row in run:
            widths[row].append(width)
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
