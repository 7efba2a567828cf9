"""Writes the Grafana dashboards of the chart from helm/panels: queries and titles of each panel.

Places, ids and all that Grafana wants besides follow from the order there. The JSON is committed
with the chart, so that nothing needs to be run to install it; a test fails when it is out of date.
Nothing is promised for Grafana before 9.
"""
# ruff: noqa: INP001 - a script beside the chart, no package

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

HERE: Final = Path(__file__).resolve().parent
PANELS: Final = HERE / "panels"
FOLDER: Final = HERE / "gpushare" / "dashboards"
COLUMNS: Final = 24
SIZES: Final = {"stat": (4, 4), "timeseries": (12, 8), "bargauge": (12, 8)}
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA: Final = 37


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One panel.

    Attributes:
        unit: in Grafana's words; ``short`` is a plain number.
        kind: one of SIZES.
        queries: PromQL by the legend of its series.
        red_above: from this value on the figure is bad.
    """

    title: str
    description: str
    unit: str
    kind: str
    queries: dict[str, str]
    red_above: float | None = None


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One page of Grafana.

    Attributes:
        choices: variables that the reader sets, each with the query that lists its values.
    """

    title: str
    description: str
    choices: dict[str, str]
    panels: list[Panel]


def names() -> list[str]:
    """Of all dashboards."""
    return sorted(file.stem for file in PANELS.glob("*.yaml"))


def text(name: str) -> str:
    """The file of a dashboard."""
    source = (PANELS / f"{name}.yaml").read_bytes()
    dashboard = msgspec.yaml.decode(source, type=Dashboard)
    content = {
        "uid": f"gpushare-{name}",
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["gpushare"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "templating": {"list": list(_variables(dashboard.choices))},
        "annotations": {"list": []},
        "links": [_link()],
        "panels": list(_placed(dashboard.panels)),
    }
    return json.dumps(content, indent=1) + "\n"


def _variables(choices: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    for name, query in choices.items():
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
        }


def _link() -> dict[str, Any]:
    """To the other dashboards of ours, at the same time."""
    return {
        "type": "dashboards",
        "title": "gpushare",
        "tags": ["gpushare"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _placed(panels: Iterable[Panel]) -> Iterator[dict[str, Any]]:
    """Panels from left to right; a row is as high as its highest."""
    x = y = high = 0
    for number, panel in enumerate(panels, 1):
        width, height = SIZES[panel.kind]
        if x + width > COLUMNS:
            x, y, high = 0, y + high, 0
        yield _panel(number, panel, {"x": x, "y": y, "w": width, "h": height})
        x, high = x + width, max(high, height)


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_above is not None:
        steps.append({"color": "red", "value": panel.red_above})
    thresholds = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": thresholds},
            "overrides": [],
        },
        "options": _options(panel.kind),
        "targets": list(_targets(panel)),
    }


def _options(kind: str) -> dict[str, Any]:
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom"}}
    shown = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"reduceOptions": shown} | ({"orientation": "horizontal"} if kind == "bargauge" else {})


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    for number, (legend, query) in enumerate(panel.queries.items()):
        yield {
            "refId": chr(ord("A") + number),
            "datasource": SOURCE,
            "expr": query,
            "legendFormat": legend,
            "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries",
        }


if __name__ == "__main__":
    for each in names():
        (FOLDER / f"{each}.json").write_text(text(each))
