"""The values, their schema and the page about them say the same."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import yaml
from charting import CHART

sys.path.insert(0, str(CHART.parent))

import valuestable

VALUES = CHART / "values.yaml"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of everything in values.yaml that is not a filled mapping."""
    if not isinstance(node, dict) or not node:
        yield path
        return
    for key, value in node.items():
        yield from leaves(value, (*path, key))


def declared(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of everything that the schema names."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    if "properties" not in node:
        yield path
        return
    for key, value in node["properties"].items():
        yield from declared(value, (*path, key))


def test_page_is_up_to_date() -> None:
    """docs/values.md is what `python helm/valuestable.py` writes now."""
    assert valuestable.PAGE.read_text() == valuestable.page(VALUES.read_text())


def test_every_value_has_a_sentence() -> None:
    """No value is without a row of its own or of the mapping it is in."""
    documented = {tuple(entry.path.split(".")) for entry in valuestable.entries(VALUES.read_text())}
    for path in leaves(yaml.safe_load(VALUES.read_text())):
        assert any(path[:length] in documented for length in range(1, len(path) + 1)), path


def test_schema_and_values_name_the_same() -> None:
    """What the schema allows has a default, and what has a default is in the schema."""
    values = yaml.safe_load(VALUES.read_text())
    named = set(declared(SCHEMA)) - {("global",)}
    defaults = set(leaves(values))
    resources = {path for path in named | defaults if "resources" in path}
    assert {path for path in named if path not in resources} == {
        path for path in defaults if path not in resources
    }
