"""Only some nodes: by name, or with ``-l`` by their labels."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from gpuinspect.cluster.snapshots import ListedObjects
from gpuinspect.commands.options import answers
from gpuinspect.commands.options.kinds import node_name
from gpuinspect.commands.options.reading import fail


def _node_names(texts: list[str] | None) -> list[str]:
    return [node_name(text) for text in texts or ()]


OnlyNode = Annotated[
    str,
    typer.Argument(
        help="only this node", metavar="NODE", autocompletion=answers.nodes, callback=node_name
    ),
]
OnlyNodes = Annotated[
    list[str] | None,
    typer.Argument(
        help="only these nodes",
        metavar="[NODE]...",
        autocompletion=answers.nodes,
        callback=_node_names,
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        "-l", "--selector", help="only nodes that match this label selector", metavar="LABELS"
    ),
]


Found = TypeVar("Found", bound=ListedObjects)
Matches = Callable[[Mapping[str, str]], bool]
_KEY: Final = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET: Final = re.compile(_KEY + r"\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUAL: Final = re.compile(_KEY + r"\s*(?P<verb>==|!=|=)\s*(?P<value>[-A-Za-z0-9_.]*)")
_EXISTS: Final = re.compile(r"(?P<no>!?)\s*" + _KEY)
_COMMA: Final = re.compile(r",(?![^(]*\))")  # not one between parentheses


def selected(snapshot: Found, selector: str) -> Found:
    """The snapshot without the nodes that ``selector`` leaves out; pods stay."""
    try:
        matches = parse(selector)
    except SelectorError as error:
        fail(error)
    nodes = tuple(node for node in snapshot.nodes if matches(node.labels))
    return msgspec.structs.replace(snapshot, nodes=nodes)


class SelectorError(ValueError):
    """The text is not a label selector."""


def parse(text: str) -> Matches:
    """A test of labels for a selector such as ``gpu=t4,zone in (a, b),!spot``; empty takes all.

    Raises:
        SelectorError: the text is no selector.
    """
    terms = [_term(part.strip()) for part in _COMMA.split(text) if part.strip()]
    return lambda labels: all(term(labels) for term in terms)


def _term(text: str) -> Matches:
    if match := _SET.fullmatch(text):
        values = {value.strip() for value in match["values"].split(",")}
        return _among(match["key"], values, wanted=match["verb"] == "in")
    if match := _EQUAL.fullmatch(text):
        return _among(match["key"], {match["value"]}, wanted=match["verb"] != "!=")
    if match := _EXISTS.fullmatch(text):
        key, wanted = match["key"], not match["no"]
        return lambda labels: (key in labels) is wanted
    raise SelectorError(f"{text!r} is not a label selector: use key=value, key in (a,b) or !key")


def _among(key: str, values: set[str], *, wanted: bool) -> Matches:
    """As the API server reads it: a missing label satisfies ``!=`` and ``notin``."""
    return lambda labels: (labels.get(key) in values) is wanted
