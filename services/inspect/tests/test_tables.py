"""The rules of Go's tabwriter."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuinspect.terminal.output import align


@pytest.mark.parametrize(
    ("raw", "aligned"),
    [
        pytest.param("a\tb\ncc\td\n", "a   b\ncc  d\n", id="last cell is not padded"),
        pytest.param(
            "a\tb\t\ncc\td\t\n", "a   b  \ncc  d  \n", id="terminated last cell is padded"
        ),
        pytest.param("aaaa\tb\nplain\nc\td\n", "aaaa  b\nplain\nc  d\n", id="a line ends the run"),
        pytest.param("a\t\tb\n", "a    b\n", id="an empty cell is as wide as the padding"),
        pytest.param(
            "x\tlong\tz\nxx\ty\nx\tw\tz\n",
            "x   long  z\nxx  y\nx   w  z\n",
            id="a second column has runs of its own within the first",
        ),
        pytest.param("é\tb\nee\tb\n", "é   b\nee  b\n", id="width counts code points"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_align(raw: str, aligned: str) -> None:
    """Columns are runs of consecutive terminated cells, two wider than the longest."""
    assert align(raw) == aligned


def reference(text: str) -> str:
    """The same by another road: widths of a column looked up cell by cell, up and down its run."""
    lines = [line.split("\t") for line in text.split("\n")]

    def has(row: int, column: int) -> bool:
        return 0 <= row < len(lines) and column < len(lines[row]) - 1

    def width(row: int, column: int) -> int:
        first = last = row
        while has(first - 1, column):
            first -= 1
        while has(last + 1, column):
            last += 1
        return max(len(lines[each][column]) for each in range(first, last + 1)) + 2

    return "\n".join(
        "".join(
            cell.ljust(width(row, column)) if has(row, column) else cell
            for column, cell in enumerate(cells)
        )
        for row, cells in enumerate(lines)
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="ab\t\n", max_size=60))
def test_any_text_aligns_as_an_independent_reading_of_the_rules(text: str) -> None:
    """Runs within a wider column's runs never disagree with looking at each column alone."""
    assert align(text) == reference(text)
