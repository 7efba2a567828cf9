"""Jobs that run beside the verbs for as long as the process lives."""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_capacity import ABSENT, NodeCapacity
from gpucore.model import Allocation, AllocationState
from gpucore.scheduling.grouping import LargeMachine, large_machine, prepare, prepared
from gpucore.topology.choice import forget
from gpucore.units import NodeName, PodUid
from gpuextender.clock import unix_ns
from gpuextender.health import Readiness
from gpuextender.state import State
from gpukube.server.time_slices import TimeSlices

EXPIRE_PARTS: Final = 4
READ_SECONDS: Final = 1.0
"""Where this process stood still, the watch is read in this time: it may confirm a Binding."""
NANOSECONDS: Final = 1_000_000_000
YOUNG_OBJECTS: Final = 50_000

log = structlog.get_logger(__name__)


async def expire_reservations(state: State, health: Readiness, *, ttl: float) -> None:
    """Release reservations that no event confirmed, while the watch is current.

    Args:
        ttl: seconds; longer than a bind can take.
    """
    while True:
        await asyncio.sleep(ttl / EXPIRE_PARTS)
        now_ns = unix_ns()
        await asyncio.sleep(READ_SECONDS)
        if health.obstacle():
            continue
        late = state.expire(now_ns=now_ns, ttl_ns=int(ttl * NANOSECONDS))
        if late:
            log.warning("reservations expired", uids=late)


async def forget_after_lists(
    state: State,
    lists: asyncio.Queue[int],
    lost: Callable[[Allocation], Awaitable[bool]],
    *,
    seconds: float,
) -> None:
    """Forget assumed pods that a list of all pods did not confirm: their Binding was lost.

    The list may be older than the Binding, and the watch late, so the pod is read before. The
    places that a gang reserves have no Binding; they expire as usual.

    Args:
        lists: when all pods were listed, in nanoseconds of :func:`unix_ns`. The latest decides: of
            what was assumed after it, it shows nothing, however late this job runs.
        lost: whether the API server has the pod without a node, or has it no more.
        seconds: longer than a bind can take; none from before the failure is running after them.
    """
    while True:
        listed = await lists.get()
        while not lists.empty():
            listed = lists.get_nowait()
        await asyncio.sleep(seconds)
        late = list[PodUid]()
        for allocation in _assumed_before(state, listed):
            if await lost(allocation) and state.ledger.allocation(allocation.uid) is allocation:
                state.forget(allocation.uid)
                late.append(allocation.uid)
        if late:
            log.warning("bindings lost by the API server", uids=late)


def _assumed_before(state: State, listed_ns: int) -> list[Allocation]:
    allocations = state.ledger.allocations().values()
    passing = (
        allocation for allocation in allocations if allocation.state is AllocationState.ASSUMED
    )
    return [allocation for allocation in passing if allocation.assume_time <= listed_ns]


async def settle_memory(loaded: Awaitable[None]) -> None:
    """Keep the garbage collector from walking the whole cluster in the middle of a filter.

    While the cluster is being read nothing is garbage; once it is read, it is set aside as it is:
    looking for garbage in it first would take longer than a scheduler waits for an answer.

    Args:
        loaded: until the cluster is read, and what lives as long is made.
    """
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        await loaded
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 50, 50)
        gc.enable()
        await asyncio.Event().wait()
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


class TopologyTables:
    """Prepares the topology tables of every kind of machine when a node's inventory arrives.

    For a kind with 9 to 16 GPUs that takes up to a second of CPU. It happens on the event loop in
    slices of a millisecond, one kind at a time, and never inside a request: until the tables of a
    kind are complete, its nodes get groups that are grown GPU by GPU.

    Tables are kept for few kinds. Those of a kind that no node has any more are given up, so that a
    node which changes its links again and again pushes out none that others use.

    Args:
        ledger: where the nodes are.
        completed: called with every node whose groups can be better now.
    """

    def __init__(self, ledger: Ledger, completed: Callable[[NodeName], object]) -> None:
        self._ledger = ledger
        self._completed = completed
        self._shapes: dict[NodeName, NodeCapacity] = {}
        self._users: Counter[LargeMachine] = Counter()
        self._waiting: dict[NodeName, None] = {}
        self._changed = asyncio.Event()

    def node_changed(self, name: NodeName) -> None:
        """A node may have another inventory, or none any more."""
        node_info = self._ledger.node(name)
        shape = node_info.shape if node_info is not None else ABSENT
        before = self._shapes.pop(name, ABSENT)
        if shape.present:
            self._shapes[name] = shape
        if before is shape:
            return
        self._count_users(before, shape)
        if shape.present and not prepared(shape):
            self._waiting[name] = None
            self._changed.set()

    def _count_users(self, before: NodeCapacity, after: NodeCapacity) -> None:
        """A node has the second shape in place of the first."""
        old, new = large_machine(before), large_machine(after)
        if new is not None:
            self._users[new] += 1
        if old is None:
            return
        self._users[old] -= 1
        if not self._users[old]:
            del self._users[old]
            forget(*old)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                name = next(iter(self._waiting))
                del self._waiting[name]
                await self._prepare(name)

    async def _prepare(self, name: NodeName) -> None:
        """Compute the tables of a node, unless its links change meanwhile: then it waits anew."""
        slices, shape = TimeSlices(), self._shapes.get(name, ABSENT)
        for _ in prepare(shape):
            await slices.yield_to_loop()
            now = self._shapes.get(name, ABSENT)
            if now is not shape and large_machine(now) != large_machine(shape):
                return
        self._completed(name)
