"""HTML out of Python values, escaped unless it was made here.

A hundred lines of templates would not pay for a template language; functions that return elements
are typed, and text can never become markup by mistake.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_VOID: Final = frozenset({"input", "link", "meta", "rect"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Markup | str | int | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def el(tag: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """One element.

    Args:
        tag: name of the element.
        children: text is escaped, elements are kept, ``None`` is nothing, iterables are joined.
        attributes: ``class_`` is ``class`` and ``aria_label`` is ``aria-label``; ``None`` and
            False leave the attribute out, True gives it no value.
    """
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{head}/>")  # SVG nests without the slash
    return Markup(f"<{tag}{head}>{join(children)}</{tag}>")


def join(child: Child) -> Markup:
    """The markup of a child of any kind."""
    if child is None:
        return Markup("")
    if isinstance(child, Markup):
        return child
    if isinstance(child, str | int):
        return Markup(escape(str(child)))
    return Markup("".join(join(each) for each in child))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Child]], *, caption: str, stacks: bool = False
) -> Markup:
    """A table whose rows are named by their first cell.

    Args:
        heads: names of the columns; ``rows`` have as many cells.
        caption: what it is, for the eye and for screen readers.
        stacks: on a narrow screen cells stand below each other, each with the name of its column;
            other tables scroll sideways there.
    """
    head = el("tr", [el("th", each, scope="col") for each in heads])
    body = [el("tr", _cells(heads, row)) for row in rows]
    inner = el("table", el("caption", caption), el("thead", head), el("tbody", body))
    kind = "scroll stacks" if stacks else "scroll"
    return el("div", inner, class_=kind, tabindex=0, role="region", aria_label=caption)


def _cells(heads: Sequence[str], row: Sequence[Child]) -> Iterable[Markup]:
    yield el("th", row[0], scope="row", data_head=heads[0])
    for head, cell in zip(heads[1:], row[1:], strict=True):
        yield el("td", cell, data_head=head)
