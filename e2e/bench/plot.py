"""Distributions as SVG: one line a series, share of calls that were at least as quick."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 320, 56, 40, 28
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b5ea7", "#b8860b", "#444444")
DASHES = ("", "6 3", "2 2", "8 2 2 2", "4 4", "1 3")


def distributions(title: str, series: Mapping[str, Sequence[float]]) -> str:
    """An SVG of the cumulative distributions of ``series``, in milliseconds."""
    top = max(_at(sorted(values), 0.995) for values in series.values())
    parts = [_frame(title, top)]
    for number, (name, values) in enumerate(series.items()):
        parts.append(_line(number, name, sorted(values), top))
    return f"{_OPEN}{''.join(parts)}</svg>\n"


_OPEN = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    'font-family="sans-serif" font-size="11">'
    f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _x(value: float, top: float) -> float:
    return LEFT + min(value / top, 1.0) * (WIDTH - LEFT - 16)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _frame(title: str, top: float) -> str:
    marks = [f'<text x="{LEFT}" y="16" font-size="13">{escape(title)}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        marks.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 16}" stroke="#ddd"/>')
        marks.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for tick in range(5):
        value = top * tick / 4
        label = f'<text x="{_x(value, top):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
        marks.append(f"{label}{value:.2g} ms</text>")
    return "".join(marks)


def _line(number: int, name: str, ordered: Sequence[float], top: float) -> str:
    steps = range(0, 101, 2)
    points = " ".join(f"{_x(_at(ordered, s / 100), top):.1f},{_y(s / 100):.1f}" for s in steps)
    colour, dash = COLOURS[number % 6], DASHES[number % 6]
    stroke = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    y = HEIGHT - BOTTOM - 12 - 15 * number
    label = (
        f'<text x="{WIDTH - 24}" y="{y}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
    )
    return f'<polyline points="{points}" {stroke}/>{label}'
