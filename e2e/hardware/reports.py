"""The table of reports of ``gpushare verify``: which property holds on which GPU and driver.

Reports lie in ``docs/isolation/reports`` as ``gpushare verify -o json`` prints them. Those of a
machine without Kubernetes state so in place of its version.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpuprobe.checks.verdicts import ROWS

VerifyReport = Mapping[str, Any]
VerifiedItem = Mapping[str, Any]
FOLDER: Final = Path(__file__).parents[2] / "docs" / "isolation" / "reports"
NOT_MEASURED: Final = "not measured"
NO_KUBERNETES: Final = "none"
"""What the report of a machine without Kubernetes has in place of its version."""
_WORDS: Final = {
    "pass": "holds",
    "fail": "**does not hold**",
    "known": "does not hold (documented)",
}
_FIGURES: Final = {
    "memory": "{reached_mib} of {allocated_mib} MiB",
    "processes": "{sum_mib} of {allocated_mib} MiB",
    "neighbour": "{kept_percent} % of its speed",
    "burst": "{reached_mib} of {limit_mib} MiB",
    "exclusive": "{gb_per_s} GB/s",
    "start": "p50 {p50_s} s, p99 {p99_s} s",
}


def read(folder: Path = FOLDER) -> list[VerifiedItem]:
    """Every GPU of every report, in the order of their files."""
    found: list[VerifiedItem] = []
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text())
        found += [item | {"kubernetes": report["kubernetes"]} for item in report["items"]]
    return found


def write(report: VerifyReport, folder: Path, mode: str) -> Path:
    """Write a report of one GPU, named after its model, its driver and the isolation mode."""
    (gpu,) = report["items"]
    model = "-".join(gpu["model"].lower().split())
    path = folder / f"{model}-{gpu['driver']}-{mode}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def table(items: Sequence[VerifiedItem]) -> str:
    """A Markdown table: a line for each property, a column for each GPU."""
    heads = [_head(item) for item in items] or ["any GPU"]
    lines = [["Row", "Property", *heads], ["---"] * (2 + len(heads))]
    for row, title in ROWS.items():
        cells = [_cell(item, row) for item in items] or [NOT_MEASURED]
        lines.append([f"`{row}`", title, *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _head(item: VerifiedItem) -> str:
    bare = ", without Kubernetes" if item.get("kubernetes") == NO_KUBERNETES else ""
    return f"{item['model']}, driver {item['driver']}, mode {item['mode']}{bare}"


def _cell(item: VerifiedItem, row: str) -> str:
    found: Iterable[Mapping[str, Any]] = (one for one in item["rows"] if one["row"] == row)
    proof = next(iter(found), None)
    if proof is None or proof["verdict"] == "skip":
        return NOT_MEASURED
    words = _WORDS[proof["verdict"]]
    form = _FIGURES.get(row)
    return f"{words}: {form.format(**proof['figures'])}" if form and proof["figures"] else words
