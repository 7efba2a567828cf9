"""Writes the tables of docs/packing-week.md and its picture from docs/benchmarks/week.json.

``make bench-week`` writes that file.
"""
# ruff: noqa: INP001 - a script beside the pages, no package

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parents[1]
FIGURES: Final = DOCS / "benchmarks" / "week.json"
PAGE: Final = DOCS / "packing-week.md"
PICTURE: Final = DOCS / "images" / "week.svg"
POLICIES: Final = ("binpack", "spread", "fragmentation", "published")
COLOURS: Final = ("#1e88e5", "#9aa5b1", "#43a047", "#f9a825")
CLASSES: Final = ("share", "one-gpu", "several-gpus", "gang")
MARKS: Final = re.compile(
    r"(<!-- weeks -->\n\n).*?(\n<!-- moves -->\n\n).*?(\n<!-- end -->)", re.DOTALL
)
_TEXT: Final = 'font-family="sans-serif" font-size="12" fill="#1f2933"'
HIGHEST: Final = 150
"""Pixels of the highest bar."""
Runs = Sequence[dict[str, Any]]


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


def table(runs: Runs) -> str:
    """One row for each load, mix and policy."""
    head = ["load", "mix", "policy", "wasted", "stranded", *CLASSES]
    return _lines([head, ["---"] * len(head), *_rows(runs)])


def _rows(runs: Runs) -> Iterator[Sequence[str]]:
    for load, mix in cases(runs):
        for policy in POLICIES:
            yield [f"{load}", mix, policy, *_values(alike(runs, load, mix, policy))]


def _values(found: Runs) -> Sequence[str]:
    parts = [f"{part(found, name):.1f} %" for name in ("wasted", "stranded")]
    return [*parts, *(wait(found, name) for name in CLASSES)]


def moves(runs: Runs) -> str:
    """Weeks with defragmentation beside those without."""
    head = ["load", "mix", "policy", "moves", "wasted", "stranded", *CLASSES]
    rows: list[Sequence[str]] = [head, ["---"] * len(head)]
    with_moves = sorted({(r["load"], r["mix"], r["policy"]) for r in runs if r["defragmented"]})
    for case in with_moves:
        for defragmented in (False, True):
            seeds = {run["seed"] for run in alike(runs, *case, defragmented=True)}
            found = alike(runs, *case, defragmented=defragmented)
            found = [run for run in found if run["seed"] in seeds]
            moved = f"{fmean(run['moves'] for run in found):.1f}" if defragmented else "off"
            rows.append([f"{case[0]}", *case[1:], moved, *_values(found)])
    return _lines(rows)


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page(text: str, runs: Runs) -> str:
    """The page with its tables written anew."""
    return MARKS.sub(
        lambda found: f"{found[1]}{table(runs)}{found[2]}{moves(runs)}{found[3]}", text
    )


def drawn(runs: Runs) -> str:
    """Bars of the wasted part, by case and policy; on white, for pages of any colour."""
    shown = cases(runs)
    most = max(part(alike(runs, *case, policy), "wasted") for case in shown for policy in POLICIES)
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
            value = part(alike(runs, *case, policy), "wasted")
            height = round(HIGHEST * value / most, 1)
            x, y = left + 32 * place, round(210 - height, 1)
            body.append(f'<rect x="{x}" y="{y}" width="28" height="{height}" fill="{colour}"/>')
            body.append(f'<text x="{x + 14}" y="{y - 4}" text-anchor="middle">{value:.1f}</text>')
        body.append(f'<text x="{left + 62}" y="228" text-anchor="middle">{case[1]}</text>')
        body.append(f'<text x="{left + 62}" y="245" text-anchor="middle">load {case[0]}</text>')
    return "\n".join([*body, "</svg>", ""])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), figures()))
    PICTURE.write_text(drawn(figures()))
