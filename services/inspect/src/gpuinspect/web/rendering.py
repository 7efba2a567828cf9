"""The templates of the dashboard. Jinja2 escapes every value, so text is never markup."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from gpuinspect.terminal.ages import UNKNOWN, age

ENVIRONMENT: Final = Environment(
    loader=PackageLoader("gpuinspect.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


class View(msgspec.Struct, frozen=True):
    """A template and the values that it shows."""

    template: str
    values: Mapping[str, Any]


class Link(msgspec.Struct, frozen=True):
    """A text with the address it links to."""

    text: str | int
    href: str


class Timestamp(msgspec.Struct, frozen=True):
    """A point in time, which the script of the pages shows in the browser's time zone.

    Attributes:
        iso: RFC 3339.
    """

    iso: str


class Age(msgspec.Struct, frozen=True):
    """The time since a moment; the moment is the tooltip.

    Attributes:
        iso: the moment, RFC 3339.
        age: as kubectl writes it, such as ``3h``.
    """

    iso: str
    age: str


Cell = str | int | Link | Timestamp | Age


def age_cell(moment: str, at: datetime) -> Cell:
    """The age of what was created at a moment; ``unknown`` where that is none."""
    text = age(moment, at)
    return "unknown" if text == UNKNOWN else Age(moment, text)


class Table(msgspec.Struct, frozen=True):
    """A table whose rows are headed by their first cell.

    Attributes:
        heads: names of the columns; ``rows`` have as many cells.
        caption: title, also for screen readers.
        stacks: on a narrow screen cells are below each other, each with the name of its column;
            other tables scroll sideways there.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str
    stacks: bool = False


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell]], *, caption: str, stacks: bool = False
) -> Table:
    """See :class:`Table`; ``rows`` may be any iterable."""
    return Table(heads, list(rows), caption, stacks)


def pod_link(namespace: str, name: str) -> Link:
    """The link to the page of a pod."""
    return Link(f"{namespace}/{name}", f"/pods/{namespace}/{name}")


def render(view: View, **more: Any) -> str:
    """The text of a template."""
    return ENVIRONMENT.get_template(view.template).render(**view.values, **more)
