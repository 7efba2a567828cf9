"""The one cache of the extender: results of the core by request and node.

kube-scheduler sends the same request (the pods of one Deployment) for the same nodes repeatedly,
while each bind changes one node. A result is kept until its node changes. Missing results are
computed for a millisecond at a time, so that other requests are answered in between.

Memory is bounded: a maximum number of requests is kept, and the one that was used least recently
is dropped first. Names that are no node are not stored.

Not guaranteed: that a long list of results is of one moment. The result of each node is correct
when the list is returned.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final, TypeVar

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.units import NodeName

REQUESTS: Final = 64
SLICE_SECONDS: Final = 0.001

R = TypeVar("R")


class NodeCache:
    """Results for the nodes of one ledger.

    Args:
        limit: maximum number of requests.
    """

    def __init__(self, ledger: Ledger, limit: int = REQUESTS) -> None:
        self._ledger = ledger
        self._limit = limit
        self._tables: OrderedDict[Hashable, dict[NodeName, Any]] = OrderedDict()

    def __len__(self) -> int:
        """Number of results that are kept."""
        return sum(map(len, self._tables.values()))

    def node_changed(self, node: NodeName) -> None:
        """Drop every result of ``node``."""
        for table in self._tables.values():
            table.pop(node, None)

    async def results(
        self,
        request: Hashable,
        nodes: Sequence[NodeName],
        compute: Callable[[NodeInfo], R],
        *,
        unknown: Callable[[NodeName], R],
    ) -> list[R]:
        """The results of ``nodes``, in their order.

        Args:
            request: identifies the results together with the node: same request, same results.
            compute: the result of a node in its present state.
            unknown: the result of a name that is no node.
        """
        while nodes:
            table = self._table(request)
            try:
                return list(map(table.__getitem__, nodes))
            except KeyError:
                missing = [node for node in nodes if node not in table]
            if not any(self._ledger.node(node) for node in missing):
                return [table[node] if node in table else unknown(node) for node in nodes]
            for _ in self._fill(request, missing, compute):
                await asyncio.sleep(0)
        return []

    def _table(self, request: Hashable) -> dict[NodeName, Any]:
        """Results of a request by node; to be looked up again after each await."""
        table = self._tables.get(request)
        if table is not None:
            self._tables.move_to_end(request)
            return table
        if len(self._tables) >= self._limit:
            self._tables.popitem(last=False)
        table = self._tables[request] = {}
        return table

    def _fill(
        self, request: Hashable, missing: Iterable[NodeName], compute: Callable[[NodeInfo], R]
    ) -> Iterator[None]:
        """Compute missing results; yields whenever a time slice ends."""
        table, until = self._table(request), perf_counter() + SLICE_SECONDS
        for node in missing:
            if perf_counter() >= until:
                yield
                table, until = self._table(request), perf_counter() + SLICE_SECONDS
            node_info = self._ledger.node(node)
            if node_info is not None:
                table[node] = compute(node_info)
