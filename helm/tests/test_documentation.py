"""The values, their schema and the page about them say the same."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from charting import CHART, SERVING

sys.path.insert(0, str(CHART.parent))

import valuestable

VALUES = CHART / "values.yaml"
CHARTS = pytest.mark.parametrize("chart", [CHART, SERVING], ids=lambda chart: chart.name)


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of everything in values.yaml that is not a filled mapping."""
    if not isinstance(node, dict) or not node:
        yield path
        return
    for key, value in node.items():
        yield from leaves(value, (*path, key))


def declared(
    schema: dict[str, Any], node: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Paths of everything that the schema names."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    if "properties" not in node:
        yield path
        return
    for key, value in node["properties"].items():
        yield from declared(schema, value, (*path, key))


def test_page_is_up_to_date() -> None:
    """The pages of both charts are what `python helm/valuestable.py` writes now."""
    assert valuestable.PAGE.read_text() == valuestable.page(VALUES.read_text())
    serving = valuestable.serving_page(valuestable.SERVING_VALUES.read_text())
    assert valuestable.SERVING_PAGE.read_text() == serving


def test_the_page_begins_with_what_operators_decide() -> None:
    """In five groups at most; each other value is below them, and none is there twice."""
    page = valuestable.page(VALUES.read_text())
    first, _, advanced = page.partition("\n## Advanced\n")
    assert len(re.findall(r"^## ", first, re.MULTILINE)) <= 5
    assert len(re.findall(r"^\| `", first, re.MULTILINE)) <= 20
    rows = re.findall(r"^\| `([\w.]+)`", first + advanced, re.MULTILINE)
    assert sorted(rows) == sorted(each.path for each in valuestable.entries(VALUES.read_text()))


@CHARTS
def test_every_value_has_a_sentence(chart: Path) -> None:
    """No value is without a row of its own or of the mapping it is in."""
    text = (chart / "values.yaml").read_text()
    documented = {tuple(entry.path.split(".")) for entry in valuestable.entries(text)}
    for path in leaves(yaml.safe_load(text)):
        assert any(path[:length] in documented for length in range(1, len(path) + 1)), path


@CHARTS
def test_schema_and_values_name_the_same(chart: Path) -> None:
    """What the schema allows has a default, and what has a default is in the schema."""
    values = yaml.safe_load((chart / "values.yaml").read_text())
    schema = json.loads((chart / "values.schema.json").read_text())
    free = {("podSecurityContext",), ("securityContext",)}
    values |= {key: {} for (key,) in free if key in values}
    named = set(declared(schema, schema)) - {("global",)}
    defaults = set(leaves(values))
    resources = {path for path in named | defaults if "resources" in path}
    assert {path for path in named if path not in resources} == {
        path for path in defaults if path not in resources
    }
