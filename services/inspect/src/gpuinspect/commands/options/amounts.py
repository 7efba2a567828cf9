"""Amounts of the command line: prices, spans of time and percentages."""

import math
import re
from typing import Annotated, Any, Final

import typer

HOURS: Final = {"h": 1, "d": 24, "w": 168}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_PERCENT: Final = re.compile(r"([0-9]{1,3})%?")
MOST_MARGIN: Final = 200
MOST_PRICE: Final = 1e9
MOST_SECONDS: Final = 86_400
"""A day; a socket takes no timeout of years."""


def finite(value: float) -> float:
    """The value of a flag; ``nan`` and ``inf`` are refused."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def seconds_option(text: str, *, least: float = 0.1, **options: Any) -> Any:
    """A flag that takes a number of seconds, at most a day; ``text`` is its help."""
    return typer.Option(help=text, min=least, max=MOST_SECONDS, callback=finite, **options)


def price_option(text: str) -> Any:
    """A flag that takes a price; ``text`` is its help."""
    return typer.Option(help=text, min=0.0, max=MOST_PRICE, callback=finite)


Interval = Annotated[float, seconds_option("seconds between two updates")]
Count = Annotated[int, typer.Option(help="number of updates; 0: until Ctrl-C", min=0)]
Price = Annotated[float, price_option("price of an hour of one GPU, in any currency")]


def days_of(text: str, flag: str) -> float:
    """Days of a span such as ``12h``, ``7d`` or ``4w``."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{flag} takes a number with h, d or w, such as 12h, 7d or 4w")
    return int(match[1]) * HOURS[match[2]] / 24


def margin_of(text: str) -> int:
    """Percent of a margin such as ``15%`` or ``15``."""
    match = _PERCENT.fullmatch(text)
    if match is None or int(match[1]) > MOST_MARGIN:
        raise typer.BadParameter(
            f"--margin takes a whole percentage from 0 to {MOST_MARGIN}, such as 15%"
        )
    return int(match[1])
