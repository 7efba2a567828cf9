"""The one cache of the extender: results of the core by request and node.

kube-scheduler sends the same request (the pods of one Deployment) for the same nodes repeatedly,
while each bind changes one node. A result is kept until its node changes. Missing results are
computed for a millisecond at a time, so that other requests are answered in between.

Each node has a place, a number, and a table has the results of one request in a list by place. So
the names of a message are looked up once, however many tables a decision reads.

Memory is bounded: a maximum number of requests is kept, and the one that was used least recently
is dropped first. Names that are no node are not stored.

Not guaranteed: that a long list of results is of one moment. The result of each node is correct
when the list is returned.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from time import perf_counter
from typing import Any, Final, TypeVar

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.scheduling.plain_shares import UNRATED, share_ratings
from gpucore.units import NodeName

REQUESTS: Final = 64
SLICE_SECONDS: Final = 0.001
NOWHERE: Final = 0
"""Place of the names that are no node."""

FEW: Final = 16
"""Up to this number of stale results, all are computed, whether or not they are requested."""

R = TypeVar("R")
T = TypeVar("T", bound="_Table")


class _Table:
    """Results of one request by place.

    Attributes:
        stale: places whose result is to be computed.
    """

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.stale = set[int]()

    def __len__(self) -> int:
        return len(self.results)

    def extend(self, places: int) -> None:
        """Have a result for each place."""
        self.results += [None] * (places - len(self.results))

    def put(self, place: int, result: Any) -> None:
        """A result was computed."""
        self.results[place] = result


class _ShareTable(_Table):
    """Ratings of plain shares, as a column of figures for each amount."""

    def __init__(self) -> None:
        super().__init__()
        self._columns: list[list[float]] = [[]]

    def __len__(self) -> int:
        return len(self._columns[0])

    def extend(self, places: int) -> None:
        more = [UNRATED] * (places - len(self))
        for column in self._columns:
            column.extend(more)

    def put(self, place: int, result: Sequence[float] | None) -> None:
        row = result or (UNRATED,)
        for _ in range(len(self._columns), len(row)):
            self._columns.append(self._columns[0][:])  # no node before this one takes the amount
        for column, rating in zip(self._columns, chain(row, repeat(row[0])), strict=False):
            column[place] = rating

    def column(self, amount: int) -> Sequence[float]:
        """Ratings of an amount by place."""
        return self._columns[amount if amount < len(self._columns) else 0]


class NodeNames:
    """Names of nodes in the order of a message, with the place of each."""

    def __init__(self, cache: "NodeCache", names: Sequence[NodeName]) -> None:
        self.names = names
        self._cache = cache
        self._version = -1
        self._places: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def places(self) -> Sequence[int]:
        """The place of each name; looked up again after nodes came or went."""
        if self._version != self._cache.version:
            self._places = self._cache.places(self.names)
            self._version = self._cache.version
        return self._places

    def only(self, selected: Sequence[object]) -> "NodeNames":
        """Those for which ``selected``, which has an entry for each name, is true."""
        found = NodeNames(self._cache, list(compress(self.names, selected)))
        found._places, found._version = list(compress(self.places, selected)), self._version
        return found


class NodeCache:
    """Results for the nodes of one ledger.

    Args:
        limit: maximum number of requests.

    Attributes:
        version: changes whenever a node gets or loses its place.
    """

    def __init__(self, ledger: Ledger, limit: int = REQUESTS) -> None:
        self.version = 0
        self._ledger = ledger
        self._limit = limit
        self._places: dict[NodeName, int] = {}
        self._nodes: list[NodeName | None] = [None]
        self._free: list[int] = []
        self._tables: OrderedDict[Hashable, _Table] = OrderedDict()
        for name in ledger.nodes():
            self._take_place(name)

    def __len__(self) -> int:
        """Number of results that are kept."""
        return sum(len(self._places) - len(table.stale) for table in self._tables.values())

    def node_changed(self, node: NodeName) -> None:
        """Drop every result of ``node``."""
        place = self._places.get(node) or self._take_place(node)
        if self._ledger.node(node) is None:
            del self._places[node]
            self._nodes[place] = None
            self._free.append(place)
            self.version += 1
        for table in self._tables.values():
            table.stale.add(place)

    def _take_place(self, name: NodeName) -> int:
        """Give a node a place, which may have been that of a removed node."""
        if not self._free:
            self._free.append(len(self._nodes))
            self._nodes.append(None)
        place = self._free.pop()
        self._places[name] = place
        self._nodes[place] = name
        self.version += 1
        return place

    def places(self, names: Sequence[NodeName]) -> Sequence[int]:
        """The place of each name."""
        try:
            return [*map(self._places.__getitem__, names)]  # 5,000 names: a quarter less time
        except KeyError:
            return [*map(self._places.get, names, repeat(NOWHERE))]

    async def results(
        self, request: Hashable, names: NodeNames, compute: Callable[[NodeInfo], R], *, unknown: R
    ) -> list[R]:
        """The results of the nodes, in the order of their names.

        Args:
            request: identifies the results together with the node: same request, same results.
            compute: the result of a node in its present state.
            unknown: the result of a name that is no node.
        """
        if not names:
            return []
        table = await self._current(
            _Table, request, names, lambda one: compute(one) if one else unknown
        )
        results = table.results
        return [results[place] for place in names.places]

    async def share_ratings(
        self, request: PodRequest, names: NodeNames, policy: str
    ) -> list[float]:
        """Ratings of a plain share, which may be :data:`UNFIT` or :data:`UNRATED`.

        Args:
            policy: name of the default policy.
        """

        def compute(node: NodeInfo | None) -> Sequence[float] | None:
            return share_ratings(node, request, policy) if node else None

        table = await self._current(_ShareTable, ("share", request.policy, policy), names, compute)
        column = table.column(request.mem)
        return [column[place] for place in names.places]

    async def _current(
        self,
        kind: Callable[[], T],
        request: Hashable,
        names: NodeNames,
        compute: Callable[[NodeInfo | None], Any],
    ) -> T:
        """The table of a request, in which the results of these nodes are current."""
        while True:
            table: T = self._table(request, kind)
            stale = table.stale
            if len(stale) > FEW:
                stale = stale.intersection(names.places)
            if not stale:
                return table
            for _ in self._fill(table, list(stale), compute):
                await asyncio.sleep(0)

    def _table(self, request: Hashable, kind: Callable[[], T]) -> T:
        """Results of a request; to be looked up again after each await."""
        table = self._tables.get(request)
        if table is None:
            if len(self._tables) >= self._limit:
                self._tables.popitem(last=False)
            table = self._tables[request] = kind()
        self._tables.move_to_end(request)
        if len(table) < len(self._nodes):
            table.stale.update(range(len(table), len(self._nodes)))
            table.extend(len(self._nodes))
        return table  # type: ignore[return-value]

    def _fill(
        self, table: _Table, stale: Iterable[int], compute: Callable[[NodeInfo | None], Any]
    ) -> Iterator[None]:
        """Compute results; yields whenever a time slice ends."""
        until = perf_counter() + SLICE_SECONDS
        for place in stale:
            if perf_counter() >= until:
                yield
                until = perf_counter() + SLICE_SECONDS
            name = self._nodes[place]
            table.put(place, compute(self._ledger.node(name) if name is not None else None))
            table.stale.discard(place)
