"""The rules of Go's tabwriter."""

import pytest

from gpuinspect.tables import align


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
