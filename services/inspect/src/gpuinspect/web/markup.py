"""HTML out of Python values, escaped unless it was made here.

A hundred lines of templates would not pay for a template language; functions that return elements
are typed, and text can never become markup by mistake.
"""

from collections.abc import Iterable
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


def table(heads: Iterable[Child], rows: Iterable[Iterable[Child]], *, caption: str) -> Markup:
    """A table, rows named by their first cell, that scrolls sideways on a narrow screen."""
    head = el("tr", [el("th", each, scope="col") for each in heads])
    body = [el("tr", [_cell(place, cell) for place, cell in enumerate(row)]) for row in rows]
    inner = el("table", el("caption", caption), el("thead", head), el("tbody", body))
    return el("div", inner, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cell(place: int, content: Child) -> Markup:
    return el("td", content) if place else el("th", content, scope="row")
