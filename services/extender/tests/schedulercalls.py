"""The calls filter and prioritize on a state, without a socket."""

import json
from collections.abc import Sequence

from decoded import best_of
from objects import Object

from gpucore.scheduling.grouping import Rules
from gpucore.units import NodeName
from gpuextender.scheduling.cache import NodeCache
from gpuextender.scheduling.filter import Filter
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.messages import FilterResult
from gpuextender.scheduling.prioritize import Prioritize
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State
from gpukube.testing.scripted import ScriptedClient


class Calls:
    """Filter and prioritize over one cache, as a service connects them."""

    def __init__(self, state: State, *, policy: str = "binpack", limit: int = 0) -> None:
        self.state, self.cache = state, NodeCache(state.ledger)
        gangs = Gangs(state, Rules(policy))
        self.requeue = Requeue(state, ScriptedClient(), gangs)
        self.best = best_of(state, self.cache, limit, policy)
        self._filter = Filter(state, gangs, self.cache, self.requeue, self.best)
        self.prioritize = Prioritize(state, gangs, self.cache, rules=Rules(policy))
        state.add_event_handler(self._node_changed)

    def _node_changed(self, name: NodeName) -> None:
        self.cache.node_changed(name)
        self._filter.node_changed()
        self.requeue.node_changed(name)

    def expected_bind(self, seconds: float) -> None:
        """Wait this long for the bind of the pod before."""
        self._filter._expected._seconds = seconds

    async def filter_body(self, body: bytes) -> FilterResult:
        """The reply of filter to any body."""
        return await self._filter.filter(body)

    async def filter(self, item: Object, names: Sequence[str]) -> FilterResult:
        """The reply of filter to node names."""
        found = await self._filter.filter(_by_name(item, names))
        assert not found.error
        return found

    async def filter_full(self, item: Object, *nodes: Object) -> FilterResult:
        """The reply of filter to full nodes."""
        found = await self._filter.filter(_full(item, nodes))
        assert not found.error
        return found

    async def scores(self, item: Object, names: Sequence[str]) -> dict[str, int]:
        """The reply of prioritize to node names, by node."""
        return await self._scored(_by_name(item, names), names)

    async def scores_full(self, item: Object, *nodes: Object) -> dict[str, int]:
        """The reply of prioritize to full nodes, by node."""
        return await self._scored(_full(item, nodes), [one["metadata"]["name"] for one in nodes])

    async def _scored(self, body: bytes, names: Sequence[str]) -> dict[str, int]:
        found = json.loads(await self.prioritize.prioritize(body))
        assert [one["Host"] for one in found] == list(names)
        return {one["Host"]: one["Score"] for one in found}


def _by_name(item: Object, names: Sequence[str]) -> bytes:
    return json.dumps({"Pod": item, "Nodes": None, "NodeNames": list(names)}).encode()


def _full(item: Object, nodes: Sequence[Object]) -> bytes:
    return json.dumps({"Pod": item, "Nodes": {"items": nodes}, "NodeNames": None}).encode()
