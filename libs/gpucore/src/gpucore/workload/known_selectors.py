"""The node selectors of the pods that came, of which no namespace keeps another's out.

The number of different selectors that are kept is bounded, for each namespace too, and so is the
number that is compared with the nodes. Namespaces have equal shares of these: each gets its most
frequent selector before any gets its second.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gpucore.steps import Steps
from gpucore.workload.arrivals import ANY_NODE, Arrival, NodeLabels, small_selector

MOST_OF_ALL: Final = 4096
"""Different selectors of all namespaces, an equal one of two namespaces counted twice."""
MOST_OF_ONE: Final = 256
"""Different selectors of one namespace."""
PODS_A_STEP: Final = 500
Weights = Mapping[NodeLabels, float]


class _Kept(msgspec.Struct):
    selector: NodeLabels
    pods: int = 0


class KnownSelectors:
    """The different selectors of the pods that are counted, each once for all pods that have it."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[NodeLabels, _Kept]] = {}
        self._number = 0

    def add(self, namespace: str, selector: NodeLabels) -> NodeLabels:
        """The selector by which a pod counts: its own, or that of any node beyond the bounds."""
        mine = self._namespaces.get(namespace, {})
        known = mine.get(selector)
        if known is None:
            full = len(mine) >= MOST_OF_ONE or self._number >= MOST_OF_ALL
            selector = ANY_NODE if full else small_selector(selector)
            if selector == ANY_NODE:
                return ANY_NODE
            known = mine[selector] = _Kept(selector)
            self._namespaces[namespace] = mine
            self._number += 1
        known.pods += 1
        return known.selector

    def drop(self, namespace: str, selector: NodeLabels) -> None:
        """A pod that counted by this selector counts no more."""
        mine = self._namespaces.get(namespace, {})
        known = mine.get(selector)
        if known is None:
            return
        known.pods -= 1
        if not known.pods:
            del mine[selector]
            self._number -= 1
        if not mine:
            del self._namespaces[namespace]


def weights_by_namespace(
    counted: Iterable[tuple[Arrival, float]],
) -> Steps[dict[str, dict[NodeLabels, float]]]:
    """How much the pods of each namespace and selector count together, in steps."""
    found: dict[str, dict[NodeLabels, float]] = {}
    for number, (arrival, weight) in enumerate(counted):
        if number % PODS_A_STEP == 0:
            yield
        mine = found.setdefault(arrival.namespace, {})
        mine[arrival.selector] = mine.get(arrival.selector, 0.0) + weight
    return found


def in_turn(namespaces: Mapping[str, Weights]) -> list[NodeLabels]:
    """Different selectors: the first of each namespace by weight, then the second of each.

    Those of one turn are in the order of their weights in all namespaces.
    """
    turns: dict[NodeLabels, int] = {}
    sums: dict[NodeLabels, float] = {}
    for weights in namespaces.values():
        for turn, selector in enumerate(_by_weight(weights)):
            turns[selector] = min(turns.get(selector, turn), turn)
            sums[selector] = sums.get(selector, 0.0) + weights[selector]
    return sorted(turns, key=lambda one: (turns[one], -sums[one], repr(one)))


def _by_weight(weights: Weights) -> Iterator[NodeLabels]:
    ordered = sorted(weights, key=lambda one: (-weights[one], repr(one)))
    return (one for one in ordered if one != ANY_NODE)
