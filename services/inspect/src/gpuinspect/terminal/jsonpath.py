r"""The part of kubectl's JSONPath that selects fields of a document.

Supported: ``{.a.b}``, ``{.a['b.c']}``, ``{.items[0]}``, ``{.items[-1]}``, ``{.items[1:3]}``,
``{.items[*].name}``, ``{range .items[*]}...{end}`` and ``{"\n"}``. Filters (``?()``) and recursive
descent (``..``) are not. A field that is missing selects nothing, as with kubectl.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

_STEP: Final = re.compile(
    r"\.(?P<star>\*)|\.(?P<name>[A-Za-z0-9_/-]+)|\[(?P<all>\*)\]|\['(?P<quoted>[^']*)'\]"
    r"|\[(?P<index>-?\d{1,9})\]|\[(?P<low>-?\d{0,9}):(?P<high>-?\d{0,9})\]"
)
_EXPRESSION: Final = re.compile(r"\{((?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^{}\"'])*)\}")
_RANGE: Final = "range "
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
Step = str | int | slice | None
"""A name, an index, a part of a list, or everything."""


class JsonPathError(ValueError):
    """The expression is not supported; the text states where."""


def select(path: str, value: Any) -> list[Any]:
    """The values at a path such as ``.items[*].name``.

    Raises:
        JsonPathError: the path cannot be read.
    """
    found = [value]
    for step in _steps(path):
        found = [each for one in found for each in _next(one, step)]
    return found


def render(template: str, document: Any) -> str:
    """The text of a template with ``{...}`` expressions.

    Raises:
        JsonPathError: an expression cannot be read.
    """
    parts = _EXPRESSION.split(template)
    for text in parts[::2]:
        if "{" in text or "}" in text:
            raise JsonPathError(f"{text!r}: braces do not match")
    return "".join(_rendered(parts, document))


def _rendered(parts: Sequence[str], value: Any) -> Iterator[str]:
    """Texts are at even places, expressions at odd ones."""
    place = 0
    while place < len(parts):
        if place % 2 == 0:
            yield parts[place]
        elif (expression := parts[place].strip()).startswith(_RANGE):
            end = _end(parts, place)
            for each in select(expression.removeprefix(_RANGE), value):
                yield from _rendered([*parts[place + 1 : end]], each)
            place = end
        elif expression == "end":
            raise JsonPathError("{end} without {range}")
        else:
            yield _text(expression, value)
        place += 1


def _end(parts: Sequence[str], start: int) -> int:
    depth = 0
    for place in range(start, len(parts), 2):
        expression = parts[place].strip()
        depth += expression.startswith(_RANGE) - (expression == "end")
        if depth == 0:
            return place
    raise JsonPathError("{range} without {end}")


def _text(expression: str, value: Any) -> str:
    if expression[:1] in {'"', "'"}:
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), expression[1:-1])
    return joined(select(expression, value), " ")


def joined(values: Iterable[Any], between: str) -> str:
    """Texts as they are, everything else as JSON."""
    return between.join(
        each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in values
    )


def _steps(path: str) -> Iterator[Step]:
    text = path.strip().removeprefix("$").removeprefix("@")
    if text == ".":
        return
    place = 0
    while place < len(text):
        match = _STEP.match(text, place)
        if match is None:
            raise JsonPathError(f"{path!r}: not supported at {text[place:]!r}")
        yield _step(match)
        place = match.end()


def _step(match: re.Match[str]) -> Step:
    if match["star"] or match["all"]:
        return None
    if match["index"] is not None:
        return int(match["index"])
    if match["low"] is not None:
        return slice(*(int(match[key]) if match[key] else None for key in ("low", "high")))
    return match["quoted"] if match["name"] is None else match["name"]


def _next(value: Any, step: Step) -> Iterator[Any]:
    if step is None:
        yield from value.values() if isinstance(value, dict) else _list(value)
    elif isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield value[step]
    elif isinstance(step, slice):
        yield from _list(value)[step]
    elif -len(_list(value)) <= step < len(_list(value)):
        yield _list(value)[step]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
