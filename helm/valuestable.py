"""Writes the pages of values from the charts' values.yaml, so that no page can be out of date.

A value is documented by the comment above it that begins with `# --`; further comment lines go on
with it. A value may be a whole mapping or list. Nothing is read from the schema: that the two agree
is what the chart's tests check.
"""
# ruff: noqa: INP001 - a script beside the chart, no package

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
VALUES = ROOT / "helm" / "gpushare" / "values.yaml"
PAGE = ROOT / "docs" / "values.md"
SERVING_VALUES = ROOT / "helm" / "gpu-serving" / "values.yaml"
SERVING_PAGE = ROOT / "docs" / "values-serving.md"
INDENT = 2
HEAD = """\
# Values of the chart

Every value that `helm install gpushare helm/gpushare --set ...` takes. Unknown names and impossible
combinations are refused before anything is installed. Most installations set values of the first
five groups only. Made by `python helm/valuestable.py` from `helm/gpushare/values.yaml`.

"""
SERVING_HEAD = """\
# Values of the serving chart

Every value that `helm install NAME helm/gpu-serving --set ...` takes, and `--values` of
`gpushare serve` ([guide](guides/serving.md)). Unknown names and impossible combinations are refused
before anything is installed. Made by `python helm/valuestable.py` from
`helm/gpu-serving/values.yaml`.

"""
GROUPS = {
    "Images": ("image.registry", "imagePullSecrets"),
    "Scheduling": ("scheduler.mode", "scheduler.name", "api", "extender.policy"),
    "Shares and isolation": (
        "devicePlugin.memoryUnit",
        "devicePlugin.reserveMiB",
        "devicePlugin.nodeSelector",
        "devicePlugin.runtimeClassName",
        "mps.enabled",
        "driverLimits.enabled",
    ),
    "Access and certificates": (
        "webhook.enabled",
        "dashboard.enabled",
        "certificates.source",
        "networkPolicy.enabled",
    ),
    "Monitoring": ("monitoring.enabled", "monitoring.labels", "dashboard.prometheusUrl"),
}
"""What an operator decides before an installation; every other value is for special cases."""
TABLE = """\
| Value | Default | What it does |
|---|---|---|
"""


@dataclass(frozen=True)
class Entry:
    """One documented value: its dotted path, its default and its comment in one line."""

    path: str
    default: Any
    text: str

    def row(self) -> str:
        """A line of the table."""
        cells = (f"`{self.path}`", f"`{json.dumps(self.default)}`", self.text)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def entries(text: str) -> Iterator[Entry]:
    """All documented values of a values.yaml, in its order."""
    values = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("# --"):
            comment = [bare.removeprefix("# --").strip()]
        elif bare.startswith("#"):
            comment = [*comment, bare.removeprefix("#").strip()] if comment else []
        elif bare and not bare.startswith("-"):
            path = [*path[: (len(line) - len(line.lstrip())) // INDENT], bare.partition(":")[0]]
            if comment:
                yield Entry(".".join(path), _at(values, path), " ".join(comment))
            comment = []


def page(text: str) -> str:
    """The page of the chart: what operators decide in groups, and everything else."""
    found = {entry.path: entry for entry in entries(text)}
    grouped = "".join(
        f"## {title}\n\n{table(found.pop(path) for path in paths)}\n"
        for title, paths in GROUPS.items()
    )
    return f"{HEAD}{grouped}## Advanced\n\n{table(found.values())}"


def serving_page(text: str) -> str:
    """The page of the serving chart."""
    return SERVING_HEAD + table(entries(text))


def table(found: Iterable[Entry]) -> str:
    """A table of values."""
    return TABLE + "".join(f"{entry.row()}\n" for entry in found)


def _at(values: Any, path: list[str]) -> Any:
    for key in path:
        values = values[key]
    return values


if __name__ == "__main__":
    PAGE.write_text(page(VALUES.read_text()))
    SERVING_PAGE.write_text(serving_page(SERVING_VALUES.read_text()))
