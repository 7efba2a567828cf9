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
from gpucore.model import PodRequest
from gpucore.scheduling.plain_shares import NO_RATINGS, ratings_for, share_ratings
from gpucore.units import NodeName

REQUESTS: Final = 64
SLICE_SECONDS: Final = 0.001

RATINGS: Final = frozenset({"rating", "score"})
"""First words of the requests whose results depend on more of a node than its GPUs."""
FEW: Final = 16
"""Up to this number of stale results, all are computed, whether or not they are requested."""

R = TypeVar("R")


class _Table:
    """Results of one request by node.

    Attributes:
        stale: nodes whose result is to be computed.
        compute: as it was last given.
    """

    def __init__(self, stale: Iterable[NodeName]) -> None:
        self.results: dict[NodeName, Any] = {}
        self.stale = set(stale)
        self.compute: Callable[[NodeInfo], Any] | None = None


class NodeCache:
    """Results for the nodes of one ledger.

    Args:
        limit: maximum number of requests.
    """

    def __init__(self, ledger: Ledger, limit: int = REQUESTS) -> None:
        self._ledger = ledger
        self._limit = limit
        self._tables: OrderedDict[Hashable, _Table] = OrderedDict()

    def __len__(self) -> int:
        """Number of results that are kept."""
        return sum(len(table.results) for table in self._tables.values())

    def node_changed(self, node: NodeName) -> None:
        """Compute every result of ``node`` again before it is read."""
        exists = self._ledger.node(node) is not None
        for table in self._tables.values():
            if exists:
                table.stale.add(node)
            else:
                table.stale.discard(node)
                table.results.pop(node, None)

    def host_changed(self, node: NodeName) -> None:
        """Compute the ratings of ``node`` again: its CPU, its memory or the usual pods changed."""
        if self._ledger.node(node) is not None:
            for request, table in self._tables.items():
                if type(request) is tuple and request[0] in RATINGS:
                    table.stale.add(node)

    async def refresh(self) -> None:
        """Compute beforehand what changed, so that the next request finds it."""
        for request in list(self._tables):
            table = self._tables.get(request)
            if table is not None and table.compute is not None:
                for _ in self._fill(table, list(table.stale), table.compute):
                    await asyncio.sleep(0)

    async def results(
        self,
        request: Hashable,
        names: Sequence[NodeName],
        compute: Callable[[NodeInfo], R],
        *,
        unknown: R,
    ) -> list[R]:
        """The results of the nodes, in the order of their names.

        Args:
            request: identifies the results together with the node: same request, same results.
            compute: the result of a node in its present state.
            unknown: the result of a name that is no node.
        """
        if not names:
            return []
        results = await self._current(request, names, compute)
        try:
            return [*map(results.__getitem__, names)]  # 5,000 names: half the time of the other
        except KeyError:
            return [results.get(name, unknown) for name in names]

    async def share_ratings(
        self, request: PodRequest, names: Sequence[NodeName], policy: str
    ) -> list[float]:
        """Ratings of a plain share, which may be :data:`UNFIT` or :data:`UNRATED`.

        They are kept for all amounts at once, because pods request many amounts.
        """
        ratings = await self.results(
            ("share", request.policy, policy),
            names,
            lambda node: share_ratings(node, request, policy),
            unknown=NO_RATINGS,
        )
        return ratings_for(request.mem, ratings)

    async def _current(
        self, request: Hashable, names: Sequence[NodeName], compute: Callable[[NodeInfo], R]
    ) -> dict[NodeName, R]:
        """Results of a request, in which those of these nodes are current."""
        while True:
            table = self._table(request)
            table.compute = compute
            stale = table.stale if len(table.stale) <= FEW else table.stale.intersection(names)
            if not stale:
                return table.results
            for _ in self._fill(table, list(stale), compute):
                await asyncio.sleep(0)

    def _table(self, request: Hashable) -> _Table:
        """Results of a request; to be looked up again after each await."""
        if request not in self._tables:
            if len(self._tables) >= self._limit:
                self._tables.popitem(last=False)
            self._tables[request] = _Table(self._ledger.nodes())
        self._tables.move_to_end(request)
        return self._tables[request]

    def _fill(
        self, table: _Table, stale: Iterable[NodeName], compute: Callable[[NodeInfo], Any]
    ) -> Iterator[None]:
        """Compute results; yields whenever a time slice ends."""
        until = perf_counter() + SLICE_SECONDS
        for name in stale:
            if perf_counter() >= until:
                yield
                until = perf_counter() + SLICE_SECONDS
            node = self._ledger.node(name)
            if node is not None:
                table.results[name] = compute(node)
            table.stale.discard(name)
