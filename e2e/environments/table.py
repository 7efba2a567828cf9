"""The table of ``kubectl inspect gpushare``, read as a person would read it."""

import re
from typing import NamedTuple

from environments.environment import Environment

_CELL = re.compile(r"(\d+)/(\d+)")


class Row(NamedTuple):
    """One node's line.

    Attributes:
        gpus: (used, total) of each GPU.
        total: (used, total) of the node.
    """

    name: str
    address: str
    gpus: list[tuple[int, int]]
    total: tuple[int, int]


def inspect(environment: Environment, *args: str) -> str:
    """What ``kubectl inspect gpushare`` prints."""
    return environment.kubectl("inspect", "gpushare", *args)


def rows(text: str) -> dict[str, Row]:
    """The lines of the summary's nodes, by name."""
    found = {}
    for line in text.splitlines()[1:]:
        if line.startswith("---"):
            break
        name, address, *_ = line.split()
        cells = [(int(a), int(b)) for a, b in _CELL.findall(line)]
        found[name] = Row(name, address, cells[:-1], cells[-1])
    return found


def used(environment: Environment, node: str) -> int:
    """Units in use on a node."""
    return rows(inspect(environment))[node].total[0]
