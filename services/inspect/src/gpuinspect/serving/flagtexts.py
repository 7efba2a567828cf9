"""The texts of repeated flags as values of the chart: pairs, mounts, tolerations.

The forms are arena's. Each function takes the flag's name, for the sentence when a text is wrong.
"""

from collections.abc import Iterable
from typing import Any

from gpuinspect.serving.errors import FlagError

ALL = "all"
"""A toleration of every taint."""


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


def tolerations(flag: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    """``KEY``, ``KEY=VALUE:EFFECT`` or ``all``.

    Raises:
        FlagError: the effect is none of Kubernetes'.
    """
    return [_toleration(flag, text) for text in texts]


def _toleration(flag: str, text: str) -> dict[str, Any]:
    if text == ALL:
        return {"operator": "Exists"}
    head, _, effect = text.partition(":")
    key, equals, value = head.partition("=")
    if not key or effect not in {"", "NoSchedule", "PreferNoSchedule", "NoExecute"}:
        raise FlagError(f"{flag} is '{text}': write KEY, KEY=VALUE:EFFECT or {ALL}")
    how = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **how, **({"effect": effect} if effect else {})}
