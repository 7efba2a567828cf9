"""The label by which a node offers its GPU memory several times over, read alike by all services.

The device plugin advertises a device for each unit, and the ledger counts the same units: whoever
reads the label by itself counts memory that the node does not offer.
"""

from collections.abc import Mapping
from typing import Final

from gpucore.wire.names import LABEL_OVERSELL
from gpucore.wire.quantity import number

MOST_OVERSELL: Final = 16
"""A larger ratio counts as this one: kubelet reads a device list of bounded size."""


def oversell_of(labels: Mapping[str, str]) -> int:
    """How many times the memory of a node may be allocated; 1 where the label is no ratio."""
    return min(number(labels.get(LABEL_OVERSELL, "")) or 1, MOST_OVERSELL)


def oversell_fault(labels: Mapping[str, str]) -> str:
    """What is wrong with the label, as a sentence; empty where nothing is."""
    text = labels.get(LABEL_OVERSELL)
    if text is None or 1 <= (number(text) or 0) <= MOST_OVERSELL:
        return ""
    return f"label {LABEL_OVERSELL} is not a number from 1 to {MOST_OVERSELL}"
