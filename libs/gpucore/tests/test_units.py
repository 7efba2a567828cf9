"""Units are named, never guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.units import GIB, MIB, MemoryUnit, UnitError


@pytest.mark.parametrize(
    ("text", "mib"), [("GiB", 1024), ("MiB", 1), ("256MiB", 256), ("2GiB", 2048), ("1MiB", 1)]
)
def test_a_unit_is_read(text: str, mib: int) -> None:
    """GiB, MiB and multiples of them are units."""
    assert MemoryUnit.parse(text).mib == mib


@pytest.mark.parametrize(
    "text", ["", "gib", "0MiB", "GB", "1.5GiB", "-1MiB", "12345678MiB", "MiB "]
)
def test_other_text_is_no_unit(text: str) -> None:
    """Anything else is refused with a sentence that shows the way."""
    with pytest.raises(UnitError, match="use GiB, MiB or a size such as 256MiB"):
        MemoryUnit.parse(text)


@given(st.integers(min_value=1, max_value=9_999_999))
def test_a_unit_reads_back(mib: int) -> None:
    """What a unit prints is the unit it reads."""
    assert MemoryUnit.parse(str(MemoryUnit(mib))) == MemoryUnit(mib)


@pytest.mark.parametrize(
    ("unit", "text"),
    [(GIB, "GiB"), (MIB, "MiB"), (MemoryUnit(256), "256MiB"), (MemoryUnit(2048), "2GiB")],
)
def test_a_unit_prints_in_its_largest_scale(unit: MemoryUnit, text: str) -> None:
    """Whole GiB print as GiB, one of a scale without its number."""
    assert str(unit) == text


def test_rounding_names_its_direction() -> None:
    """A GPU's units round down, units to hold an amount round up, and neither is negative."""
    assert GIB.units_in(16130) == 15
    assert GIB.units_for(16130) == 16
    assert GIB.units_for(1024) == GIB.units_in(1024) == 1
    assert GIB.units_in(-1) == GIB.units_for(-1) == 0


def test_units_order_by_size() -> None:
    """A MiB is less than a GiB."""
    assert MIB < GIB
