"""Sentences that fit the width of a terminal; tables never wrap, since tools cut them by column."""

import textwrap

LEAST = 40
"""Texts are not wrapped on narrower terminals."""


def wrapped(text: str, width: int | None, *, indent: int = 0) -> str:
    """One line, or several of at most ``width`` with the later ones indented; ends in a newline.

    Args:
        text: without newlines.
        width: of the terminal; ``None`` where there is none, and nothing is wrapped.
        indent: spaces before the later lines.
    """
    if width is None or width < LEAST or len(text) < width:
        return f"{text}\n"
    lines = textwrap.wrap(text, width - 1, subsequent_indent=" " * indent, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """The text without line breaks and without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def nodes(count: int) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} node{'' if count == 1 else 's'}"
