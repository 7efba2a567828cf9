"""Writes the tables of docs/packing-week.md and its picture from docs/benchmarks/week.json.

``make bench-week`` writes that file.
"""
# ruff: noqa: INP001 - a script beside the pages, no package

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final, NamedTuple

DOCS: Final = Path(__file__).resolve().parents[1]
FIGURES: Final = DOCS / "benchmarks" / "week.json"
PAGE: Final = DOCS / "packing-week.md"
PICTURE: Final = DOCS / "images" / "week.svg"
POLICIES: Final = ("binpack", "spread", "fragmentation", "published")
COLOURS: Final = ("#1e88e5", "#9aa5b1", "#43a047", "#f9a825")
CLASSES: Final = ("share", "one-gpu", "several-gpus", "gang")
BASE: Final = "binpack"
"""The policy with which others are compared."""
WAIT: Final = "several-gpus"
"""The class of pods that waits longest."""
STUDENT: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Standard errors to each side of the mean within which the true one is with 95 %, from 2 weeks."""
_TEXT: Final = 'font-family="sans-serif" font-size="12" fill="#1f2933"'
HIGHEST: Final = 150
"""Pixels of the highest bar."""
Runs = Sequence[dict[str, Any]]


class Difference(NamedTuple):
    """Of two kinds of weeks, paired by seed.

    Attributes:
        margin: to each side of the mean; the true difference is within it with 95 %.
        lower: pairs in which the first has less.
    """

    mean: float
    margin: float
    lower: int
    pairs: int

    @property
    def decided(self) -> bool:
        """Whether chance alone hardly explains it."""
        return abs(self.mean) > self.margin

    def __str__(self) -> str:
        """Mean, margin, and pairs with less."""
        text = f"{self.mean:+.1f} ± {self.margin:.1f}, {self.lower} of {self.pairs}"
        return f"**{text}**" if self.decided else text


def figures() -> Runs:
    """All weeks."""
    found: Runs = json.loads(FIGURES.read_text())
    return found


def cases(runs: Runs) -> list[tuple[float, str]]:
    """Load and mix of the weeks."""
    return sorted({(run["load"], run["mix"]) for run in runs})


def alike(runs: Runs, load: float, mix: str, policy: str, *, defragmented: bool = False) -> Runs:
    """The weeks of one case, one for each seed."""
    wanted = (load, mix, policy, defragmented)
    keys = ("load", "mix", "policy", "defragmented")
    return [run for run in runs if tuple(run[key] for key in keys) == wanted]


def part(runs: Runs, name: str) -> float:
    """Mean percentage of all GPU hours."""
    return fmean(100 * run[f"{name}_gpu_hours"] / run["gpu_hours"] for run in runs)


def wait(runs: Runs, name: str) -> str:
    """Mean and 95th percentile in minutes."""
    found = [run["waiting"][name] for run in runs]
    return " / ".join(f"{fmean(one[key] for one in found) / 60:.1f}" for key in ("mean", "p95"))


def wasted(run: dict[str, Any]) -> float:
    """Percentage of all GPU hours."""
    return part([run], "wasted")


def waited(run: dict[str, Any]) -> float:
    """Mean hours of pods with several GPUs."""
    return float(run["waiting"][WAIT]["mean"]) / 3600


def difference(these: Runs, those: Runs, value: Callable[[dict[str, Any]], float]) -> Difference:
    """What the first weeks have more than the others with the same seeds."""
    others = {run["seed"]: value(run) for run in those}
    found = [value(run) - others[run["seed"]] for run in these if run["seed"] in others]
    margin = STUDENT[len(found) - 2] * stdev(found) / len(found) ** 0.5
    return Difference(fmean(found), margin, sum(each < 0 for each in found), len(found))


def table(runs: Runs) -> str:
    """One row for each load, mix and policy."""
    head = ["load", "mix", "policy", "wasted", "stranded", *CLASSES]
    return _lines([head, ["---"] * len(head), *_rows(runs)])


def _rows(runs: Runs) -> Iterator[Sequence[str]]:
    for load, mix in cases(runs):
        for policy in POLICIES:
            yield [f"{load}", mix, policy, *_values(alike(runs, load, mix, policy))]


def _values(found: Runs) -> Sequence[str]:
    each = [wasted(run) for run in found]
    lost = f"{fmean(each):.1f} % ({min(each):.1f} to {max(each):.1f})"
    waits = (wait(found, name) for name in CLASSES)
    return [lost, f"{part(found, 'stranded'):.1f} %", *waits]


def pairs(runs: Runs) -> str:
    """Each policy beside binpack, paired by seed."""
    rows: list[Sequence[str]] = [
        ["load", "mix", "policy", "wasted, points", "wait of several-gpus, hours"]
    ]
    rows.append(["---"] * len(rows[0]))
    for case in cases(runs):
        base = alike(runs, *case, BASE)
        for policy in POLICIES:
            if policy != BASE:
                found = alike(runs, *case, policy)
                both = (difference(found, base, value) for value in (wasted, waited))
                rows.append([f"{case[0]}", case[1], policy, *map(str, both)])
    return _lines(rows)


def moved(runs: Runs) -> list[tuple[float, str, str]]:
    """Load, mix and policy of the weeks with defragmentation."""
    return sorted({(r["load"], r["mix"], r["policy"]) for r in runs if r["defragmented"]})


def moves(runs: Runs) -> str:
    """Weeks with defragmentation beside those without, paired by seed."""
    rows: list[Sequence[str]] = [
        [
            *("load", "mix", "policy", "moves", "wasted without", "with", "difference, points"),
            *("hours that several-gpus wait without", "with", "difference, hours"),
        ]
    ]
    rows.append(["---"] * len(rows[0]))
    for case in moved(runs):
        on = alike(runs, *case, defragmented=True)
        seeds = {run["seed"] for run in on}
        off = [run for run in alike(runs, *case) if run["seed"] in seeds]
        row = [f"{case[0]}", *case[1:], f"{fmean(run['moves'] for run in on):.1f}"]
        for value, unit in ((wasted, " %"), (waited, "")):
            row += [f"{fmean(map(value, found)):.1f}{unit}" for found in (off, on)]
            row.append(str(difference(on, off, value)))
        rows.append(row)
    return _lines(rows)


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page(text: str, runs: Runs) -> str:
    """The page with its tables written anew."""
    for name, written in (("weeks", table), ("pairs", pairs), ("moves", moves)):
        text = _between(text, name, written(runs))
    return text


def _between(text: str, name: str, lines: str) -> str:
    """The text with these lines between a mark and the next end."""
    mark = rf"(<!-- {name} -->\n\n).*?(\n<!-- end -->)"
    return re.sub(mark, lambda found: f"{found[1]}{lines}{found[2]}", text, flags=re.DOTALL)


def drawn(runs: Runs) -> str:
    """Bars of the mean wasted part, by case and policy, with a line from the least to the most.

    On white, for pages of any colour.
    """
    shown = cases(runs)
    most = max(map(wasted, runs))
    width = 40 + 150 * len(shown)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 260" role="img" {_TEXT}>',
        "<title>GPU hours wasted in simulated weeks by load, mix and policy</title>",
        f'<rect width="{width}" height="260" fill="#ffffff"/>',
    ]
    for place, (policy, colour) in enumerate(zip(POLICIES, COLOURS, strict=True)):
        x = 20 + 130 * place
        body.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>')
        body.append(f'<text x="{x + 18}" y="22">{policy}</text>')
    for number, case in enumerate(shown):
        left = 20 + 150 * number
        for place, (policy, colour) in enumerate(zip(POLICIES, COLOURS, strict=True)):
            body += _bar(
                [wasted(run) for run in alike(runs, *case, policy)], most, left + 32 * place, colour
            )
        body.append(f'<text x="{left + 62}" y="228" text-anchor="middle">{case[1]}</text>')
        body.append(f'<text x="{left + 62}" y="245" text-anchor="middle">load {case[0]}</text>')
    return "\n".join([*body, "</svg>", ""])


def _bar(values: Sequence[float], most: float, x: int, colour: str) -> Iterator[str]:
    low, mean, high = (
        round(210 - HIGHEST * each / most, 1) for each in (min(values), fmean(values), max(values))
    )
    height = round(210 - mean, 1)
    yield f'<rect x="{x}" y="{mean}" width="28" height="{height}" fill="{colour}"/>'
    yield f'<path d="M{x + 14} {low}V{high}" stroke="#1f2933"/>'
    text = f"{fmean(values):.1f}"
    yield f'<text x="{x + 14}" y="{round(high - 4, 1)}" text-anchor="middle">{text}</text>'


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), figures()))
    PICTURE.write_text(drawn(figures()))
