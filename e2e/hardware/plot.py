"""Figures as SVG: one line a series, with the least and greatest run of every point."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 640
HEIGHT: Final = 320
LEFT: Final = 64
RIGHT: Final = 20
TOP: Final = 36
BOTTOM: Final = 48
COLOURS: Final = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b5ea7")
DASHES: Final = ("", "6 3", "2 2", "8 2 2 2")
GRID: Final = 4


class PlotPoint(NamedTuple):
    """A place on the axis across, and the least, median and greatest value there."""

    x: float
    least: float
    median: float
    greatest: float


Series = Mapping[str, Sequence[PlotPoint]]


def lines(title: str, across: str, up: str, series: Series) -> str:
    """An SVG of the series; both axes begin at 0, and each line is named beside its own mark."""
    points = [point for values in series.values() for point in values]
    scale = _Scale(max(point.x for point in points), max(point.greatest for point in points))
    parts = [_frame(title, across, up, scale, sorted({point.x for point in points}))]
    for number, (name, values) in enumerate(series.items()):
        parts.append(_line(number, values, scale))
        parts.append(_legend(number, name))
    return f"{_OPEN}{''.join(parts)}</svg>\n"


_OPEN: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    'font-family="sans-serif" font-size="11">'
    f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
)


class _Scale(NamedTuple):
    """The greatest value of each axis."""

    across: float
    up: float

    def x(self, value: float) -> float:
        return LEFT + value / (self.across or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / (self.up or 1) * (HEIGHT - TOP - BOTTOM)


def _frame(title: str, across: str, up: str, scale: _Scale, ticks: Sequence[float]) -> str:
    foot = HEIGHT - BOTTOM
    marks = [
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>',
        f'<text x="{LEFT}" y="30" fill="#555">{escape(up)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="{foot + 38}" text-anchor="end">{escape(across)}</text>',
    ]
    for step in range(GRID + 1):
        value = scale.up * step / GRID
        y = scale.y(value)
        marks.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for tick in ticks:
        x = scale.x(tick)
        marks.append(f'<text x="{x:.1f}" y="{foot + 16}" text-anchor="middle">{tick:g}</text>')
    return "".join(marks)


def _line(number: int, values: Sequence[PlotPoint], scale: _Scale) -> str:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    way = " ".join(f"{scale.x(p.x):.1f},{scale.y(p.median):.1f}" for p in values)
    stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    parts = [f'<polyline points="{way}" fill="none" {stroke}/>']
    for point in values:
        x = scale.x(point.x)
        span = f"M{x:.1f} {scale.y(point.least):.1f}V{scale.y(point.greatest):.1f}"
        parts.append(f'<path d="{span}" stroke="{colour}"/>')
        parts.append(
            f'<circle cx="{x:.1f}" cy="{scale.y(point.median):.1f}" r="3" fill="{colour}"/>'
        )
    return "".join(parts)


def _legend(number: int, name: str) -> str:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    x, y = LEFT + 12, TOP + 14 + 15 * number
    stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    return (
        f'<path d="M{x} {y - 4}h24" {stroke}/>'
        f'<text x="{x + 30}" y="{y}" fill="{colour}">{escape(name)}</text>'
    )
