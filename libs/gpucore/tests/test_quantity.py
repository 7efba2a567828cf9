"""Kubernetes quantities become whole numbers."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.wire.errors import WireError
from gpucore.wire.quantity import MOST, amount, counted, exact


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("8", 8),
        ("+8", 8),
        ("32k", 32_000),
        ("1.5k", 1500),
        (".5k", 500),
        ("2M", 2_000_000),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("16Ki", 16 * 1024),
        ("1Mi", 1024**2),
        ("1Gi", 1024**3),
        ("2Ti", 2 * 1024**4),
        ("1Pi", 1024**5),
        ("1Ei", 1024**6),
        ("3e2", 300),
        ("3E2", 300),
        ("25e-1", 3),
        ("500m", 1),
        ("1001m", 2),
        ("1u", 1),
        ("1n", 1),
        ("8.", 8),
    ],
)
def test_every_suffix_is_read(text: str, value: int) -> None:
    """A quantity in any of the API's spellings gives its value, fractions rounded up."""
    assert amount(text) == value


@pytest.mark.parametrize(
    "text", ["", " 8", "8 ", "-8", "8GiB", "1e", "1e+", "٨", "8_0", ".", "k", "²"]
)
def test_anything_else_is_refused(text: str) -> None:
    """Text that is no quantity is the module's own error."""
    with pytest.raises(WireError, match="no quantity"):
        amount(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, MOST) for text in ("1e102", "1e999", "1e+99999999999", "9E", "1" * 31)),
        *((text, MOST) for text in ("1" * 5000, "9" * 5000 + ".5", "1" + "0" * 200 + "e-20")),
        *((text, 1) for text in ("1e-999", "." + "0" * 5000 + "1", "1e-99999999999")),
        *((text, 0) for text in ("0e999", "0" * 5000, "0." + "0" * 5000, "0e-999")),
        ("0" * 5000 + "7", 7),
        ("1" + "0" * 200 + "e-200", 1),
        ("2" * 200 + "e-199", 3),
    ],
)
def test_what_the_api_server_takes_is_a_number(text: str, value: int) -> None:
    """It stores each of them, of cpu, memory or a device, as a tenant wrote it."""
    assert amount(text) == value


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("9E", MOST, 0),
        ("10E", 0, 0),
        ("717E", 0, 0),
        ("1e999", 0, 0),
        ("1e+99999999999", 0, 0),
        ("18446744073709551618", 2, 2000),
        ("18446744073709551615", 0, 0),
        ("7378697629483820646407", 7, 7000),
        ("85534305892550552G", 249716334037692416, 0),
        ("38970137111123382M", 0, MOST),
        ("16Ei", MOST, 0),
        ("410.678Mi", 430627095, 430627094528),
        ("0" * 5000 + "7", 7, 7000),
        ("9" * 5000, 0, 0),
    ],
)
def test_an_overflow_is_counted_as_kubelet_counts_it(text: str, value: int, milli: int) -> None:
    """The API server takes such amounts, and kubelet admits the pod with what is left of them.

    The values are those of k8s.io/apimachinery 0.37; a negative one counts as none.
    """
    assert (counted(text), counted(text, shift=3)) == (value, milli)


@given(st.integers(min_value=0, max_value=10**12))
def test_canonical_thousands_read_back(value: int) -> None:
    """An amount that the API server rewrites with a suffix keeps its value."""
    assert amount(f"{value}k") == 1000 * amount(str(value)) == 1000 * value


POWERS = {
    **{
        suffix: Fraction(1024) ** power for power, suffix in enumerate(["", "Ki", "Mi", "Gi", "Ti"])
    },
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "E": Fraction(10) ** 18,
    "e-7": Fraction(1, 10**7),
    "E12": 10**12,
}


@given(
    st.from_regex(r"\+?([0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True).filter(
        str.isascii
    ),
    st.sampled_from(sorted(POWERS)),
)
def test_a_value_is_exact_until_it_is_rounded_up(digits: str, suffix: str) -> None:
    """As fractions have it: whole units, thousandths of cpu, and the value itself."""
    value = Fraction(digits.lstrip("+").rstrip(".")) * POWERS[suffix]
    assert Fraction(*exact(digits + suffix)) == value
    assert amount(digits + suffix) == min(math.ceil(value), MOST)
    if value < 1 << 50:
        assert counted(digits + suffix) == math.ceil(value)
        assert counted(digits + suffix, shift=3) == math.ceil(1000 * value)
    assert math.gcd(*exact(digits + suffix)) == 1
