"""Compares the output that a page shows with the output that came.

Spaces count as one, however many; so do dashes of a ruled line, since columns are as wide as names
happen to be. Blank lines at the end do not count, nor does the namespace that kubectl names when it
deletes: before 1.33 it did not. ``...`` stands for anything within a line, and
alone on a line for any number of lines, none included. Everything else is compared as it stands.
"""

import re
from collections.abc import Sequence

ANY = "..."
_DELETED = re.compile(r'^(\S+ "\S+"(?: force)? deleted) from \S+ namespace$')


def matches(expected: Sequence[str], output: str) -> bool:
    """True when ``output`` is what the page shows; a page that shows nothing takes anything."""
    wanted, came = _plain(expected), _plain(output.splitlines())
    return not wanted or _match(wanted, came)


def _match(wanted: Sequence[str], came: Sequence[str]) -> bool:
    """Lines against lines, greedily: after ``...`` the first place that fits the rest."""
    if not wanted:
        return not came
    if wanted[0] == ANY:
        return any(_match(wanted[1:], came[at:]) for at in range(len(came) + 1))
    return bool(came) and _fits(wanted[0], came[0]) and _match(wanted[1:], came[1:])


def _fits(wanted: str, came: str) -> bool:
    pieces = (re.escape(piece) for piece in wanted.split(ANY))
    return re.fullmatch(".*".join(pieces), came) is not None


def _plain(lines: Sequence[str]) -> list[str]:
    plain = [re.sub(r"-{3,}", "---", re.sub(r"\s+", " ", line)).strip() for line in lines]
    plain = [_DELETED.sub(r"\1", line) for line in plain]
    while plain and not plain[-1]:
        plain.pop()
    return plain
