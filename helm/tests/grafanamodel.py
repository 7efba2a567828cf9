"""Dashboards held to Grafana's own model: the Python types that Grafana generates from its schema.

Those types accept any JSON, so that two things are compared here: what they kept, in which a field
that Grafana does not know is missing; and every value with the type that its field is declared to
have.
"""

import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()  # the options and queries of each kind of panel


def faults(content: dict[str, Any]) -> list[str]:
    """Where a dashboard departs from the model; nothing where Grafana understands all of it."""
    parsed = Dashboard.from_json(content)
    kept = json.loads(JSONEncoder().encode(parsed))
    return [*_lost(content, kept, "dashboard"), *_mistyped(parsed, Dashboard, "dashboard")]


def _lost(given: Any, kept: Any, where: str) -> Iterator[str]:
    """Fields that are gone or changed; those that got a default do not count."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name in kept:
                yield from _lost(value, kept[name], f"{where}.{name}")
            else:
                yield f"{where}.{name} is unknown"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, pair in enumerate(zip(given, kept, strict=True)):
            yield from _lost(*pair, f"{where}[{number}]")
    elif given != kept:
        yield f"{where} is {given!r}, read as {kept!r}"


def _mistyped(value: Any, wanted: Any, where: str) -> list[str]:
    """Where a value, or one inside it, is not of its declared type."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in {typing.Union, types.UnionType}:
        found = [_mistyped(value, part, where) for part in parts]
        return [] if [] in found else max(found, key=_depth)
    if origin is typing.Literal:
        return [] if value in parts else [f"{where} is {value!r}, not one of {parts}"]
    if origin in {list, dict}:
        return _of_items(value, origin, parts[-1], where)
    return _of_class(value, wanted, where) if isinstance(wanted, type) else []


def _depth(faults: list[str]) -> int:
    """Of the alternatives, the one that was meant goes wrong farthest inside."""
    return faults[0].partition(" is ")[0].count(".")


def _of_items(value: Any, wanted: type, item: Any, where: str) -> list[str]:
    if not isinstance(value, wanted):
        return [f"{where} is {value!r}, not of type {wanted.__name__}"]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [fault for key, each in items for fault in _mistyped(each, item, f"{where}[{key}]")]


def _of_class(value: Any, wanted: type, where: str) -> list[str]:
    kind = type(value) if wanted is object else wanted
    if issubclass(kind, enum.Enum):
        known = [each.value for each in kind]
        return [] if value in list(kind) else [f"{where} is {value!r}, not one of {known}"]
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        return [f"{where} is {value!r}, not of type {kind.__name__}"]
    if not kind.__module__.startswith("grafana_foundation_sdk."):
        return []
    hints = typing.get_type_hints(type(value)).items()
    fields = [(name, hint) for name, hint in hints if name in vars(value)]
    return [
        fault
        for name, hint in fields
        for fault in _mistyped(getattr(value, name), hint, f"{where}.{name}")
    ]
