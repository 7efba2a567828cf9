"""``-l``: only the nodes that carry these labels."""

from typing import Annotated, TypeVar

import msgspec
import typer

from gpuinspect.cluster import selectors
from gpuinspect.cluster.snapshots import ListedObjects
from gpuinspect.commands.options.reading import fail

Selector = Annotated[
    str,
    typer.Option(
        "-l", "--selector", help="only nodes that match this label selector", metavar="LABELS"
    ),
]


Found = TypeVar("Found", bound=ListedObjects)


def selected(snapshot: Found, selector: str) -> Found:
    """The snapshot without the nodes that ``selector`` leaves out; pods stay."""
    try:
        matches = selectors.parse(selector)
    except selectors.SelectorError as error:
        fail(error)
    nodes = tuple(node for node in snapshot.nodes if matches(node.labels))
    return msgspec.structs.replace(snapshot, nodes=nodes)
