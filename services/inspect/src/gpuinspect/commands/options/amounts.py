"""Amounts of the command line: prices, spans of time and percentages."""

import math
import re
from typing import Annotated, Final

import typer

HOURS: Final = {"h": 1, "d": 24, "w": 168}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_PERCENT: Final = re.compile(r"([0-9]{1,3})%?")
MOST_MARGIN: Final = 200
Price = Annotated[float, typer.Option(help="price of an hour of one GPU, in any currency", min=0.0)]


def finite(value: float) -> float:
    """The value of a flag; ``nan`` and ``inf`` are refused."""
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


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
