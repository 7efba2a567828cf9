"""How many pods may be evicted: in all, of one node, of one namespace and for one, in an hour.

The history of all runs counts, so that runs in short succession evict no more than one. A pod that
was served once, and a workload that lost a pod, are left alone for the same hour: otherwise a pod
that another one overtakes would have pods evicted again and again.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpucore.units import NodeName, PodUid

PERIOD_SECONDS: Final = 3600
MOST_REMEMBERED: Final = 500


class PastEviction(msgspec.Struct, frozen=True, array_like=True):
    """An eviction that was about to be requested; ``at`` in Unix seconds.

    Attributes:
        namespace: of the evicted pod; ``owner`` is the UID of its controller.
        waiting: UID of the pod for which it was evicted, of ``for_namespace``.
    """

    at: int
    node: NodeName
    namespace: str
    uid: PodUid
    owner: str
    waiting: PodUid
    for_namespace: str


class Budgets(msgspec.Struct, frozen=True):
    """Maximum numbers of evictions in an hour.

    Attributes:
        per_namespace: of pods of one namespace, and for pods of one namespace.
        across_namespaces: pods of other namespaces may be evicted as well.
    """

    total: int = 6
    per_node: int = 4
    per_namespace: int = 4
    across_namespaces: bool = False


class Allowance:
    """What the budgets leave after the evictions of the last hour."""

    def __init__(self, budgets: Budgets, history: Iterable[PastEviction] = ()) -> None:
        past = list(history)
        self.budgets = budgets
        self._total = len(past)
        self._nodes = Counter(one.node for one in past)
        self._namespaces = Counter(one.namespace for one in past)
        self._served_namespaces = Counter(one.for_namespace for one in past)
        self._served = {one.waiting for one in past}
        self._owners = {one.owner for one in past}

    def served(self, uid: PodUid) -> bool:
        """Pods were evicted for this pod already."""
        return uid in self._served

    def disturbed(self, owner: str) -> bool:
        """The workload lost a pod already."""
        return owner in self._owners

    def most(self, node: NodeName, for_namespace: str) -> int:
        """Maximum number of evictions on a node for a pod of a namespace."""
        left = (
            self.budgets.total - self._total,
            self.budgets.per_node - self._nodes[node],
            self.budgets.per_namespace - self._served_namespaces[for_namespace],
        )
        return max(min(left), 0)

    def allows(self, namespaces: Sequence[str]) -> bool:
        """Whether one pod of each of these namespaces may be evicted; a name counts each time."""
        wanted = Counter(namespaces)
        most = self.budgets.per_namespace
        return all(self._namespaces[name] + count <= most for name, count in wanted.items())


def recent(history: Iterable[PastEviction], now: int) -> tuple[PastEviction, ...]:
    """The evictions of the last hour; one in the future counts, since a clock may be wrong."""
    kept = [one for one in history if one.at > now - PERIOD_SECONDS]
    return tuple(kept[-MOST_REMEMBERED:])
