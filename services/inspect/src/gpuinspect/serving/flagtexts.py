"""The texts of repeated flags as values of the chart: pairs, mounts, tolerations.

The forms are arena's. Each function takes the flag's name, for the sentence when a text is wrong.
"""

import shlex
from collections.abc import Iterable
from typing import Any

from gpuinspect.errors import FlagError

READ_ONLY = "ro"
MODES = {READ_ONLY, "rw"}
"""What may follow a mount of data."""
ALL = "all"
"""A toleration of every taint."""
EXISTS, EQUAL = "Exists", "Equal"
EFFECTS = {"", "NoSchedule", "PreferNoSchedule", "NoExecute"}


def pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts; the last of a name wins, as in a shell.

    Raises:
        FlagError: a text has no ``=``, or nothing before it.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise FlagError(f"{flag} is '{text}': write NAME=VALUE")
        found[name] = value
    return found


def words(flag: str, text: str) -> list[str]:
    """The words of a text, quotes and backslashes read as a shell reads them.

    Raises:
        FlagError: a quotation does not end.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise FlagError(f"{flag} is '{text}': {error}") from error


def mounts(flag: str, key: str, texts: Iterable[str]) -> list[dict[str, str]]:
    """``WHAT:/where`` texts as mounts, ``WHAT`` under the name ``key``.

    Raises:
        FlagError: a part is missing, or the place is no absolute path.
    """
    found = []
    for text in texts:
        what, _, where = text.rpartition(":")
        if not what or not where.startswith("/"):
            raise FlagError(f"{flag} is '{text}': write {key.upper()}:/PATH/IN/CONTAINER")
        found.append({key: what, "mountPath": where})
    return found


def data_mounts(flag: str, key: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    """:func:`mounts` that are writable, as arena's are, unless ``:ro`` ends the text.

    Raises:
        FlagError: as there.
    """
    found = []
    for text in texts:
        rest, _, mode = text.rpartition(":")
        (mount,) = mounts(flag, key, [rest if mode in MODES else text])
        found.append({**mount, "readOnly": mode == READ_ONLY})
    return found


def with_expressions(
    flag: str, key: str, found: Iterable[dict[str, Any]], texts: Iterable[str]
) -> list[dict[str, Any]]:
    """:func:`mounts`, with the ``WHAT:EXPRESSION`` texts as the folder that is mounted of each.

    Raises:
        FlagError: a part is missing, or nothing of that name is mounted.
    """
    expressions: dict[str, str] = {}
    for text in texts:
        what, _, expression = text.partition(":")
        if not what or not expression:
            raise FlagError(f"{flag} is '{text}': write {key.upper()}:EXPRESSION")
        expressions[what] = expression
    placed = list(found)
    if strange := expressions.keys() - {mount[key] for mount in placed}:
        raise FlagError(f"{flag} is for {min(strange)}, which is not mounted")
    return [
        {**mount, "subPathExpr": expressions[mount[key]]} if mount[key] in expressions else mount
        for mount in placed
    ]


def tolerations(flag: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    """``KEY``, ``KEY=VALUE:EFFECT``, the same with ``,OPERATOR`` behind it, or ``all``.

    Raises:
        FlagError: effect or operator are none of Kubernetes'.
    """
    return [_toleration(flag, text) for text in texts]


def _toleration(flag: str, text: str) -> dict[str, Any]:
    if text == ALL:
        return {"operator": EXISTS}
    rest, _, operator = text.partition(",")
    head, _, effect = rest.partition(":")
    key, equals, value = head.partition("=")
    if not key or effect not in EFFECTS or operator not in {"", EXISTS, EQUAL}:
        raise FlagError(f"{flag} is '{text}': write KEY, KEY=VALUE:EFFECT[,OPERATOR] or {ALL}")
    chosen = operator or (EQUAL if equals else EXISTS)
    how = {"value": value} if chosen == EQUAL else {}
    return {"key": key, "operator": chosen, **how, **({"effect": effect} if effect else {})}
