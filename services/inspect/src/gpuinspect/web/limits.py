"""How much of the cluster one page evaluates."""

from typing import Final

LOOKS: Final = 20_000
"""Nodes times different pods: one to three seconds, in which other requests wait."""


def most_pods(nodes: int) -> int:
    """Number of different pods that a page evaluates on this number of nodes."""
    return max(LOOKS // max(nodes, 1), 1)
