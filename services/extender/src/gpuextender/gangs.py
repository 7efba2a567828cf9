"""Gangs in front of the verbs: where a pod of a gang may go, and the place it takes there.

The core chooses; here its places are kept in the state. Every verb asks, because a scheduler may be
configured to call any of them alone, and asking again changes nothing. A gang never preempts: room
for one of its pods says nothing about the others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from time import time_ns

from gpucore.explain import sentence
from gpucore.gang import Seating, Shortage, seat, taken
from gpucore.gangmembers import Postponed, resting
from gpucore.gangplaces import Rules
from gpucore.model import Claim, Code, Demand, Placement, Refusal
from gpucore.policy import MAX_SCORE
from gpucore.units import NodeName
from gpucore.wire.gangs import Gang, gang_of
from gpuextender.said import Said
from gpuextender.state import Asking, State


class Gangs:
    """The gangs of one cluster.

    Args:
        rules: how cards are chosen.
        clock: Unix nanoseconds.
    """

    def __init__(self, state: State, rules: Rules, *, clock: Callable[[], int] = time_ns) -> None:
        self._state = state
        self._rules = rules
        self._clock = clock

    def admit(self, asking: Asking, names: Sequence[NodeName]) -> frozenset[NodeName] | str | None:
        """Nodes of ``names`` that the pod may go to, or why to none; ``None``: it has no gang."""
        gang = gang_of(asking.pod)
        if gang is None or asking.demand is None or asking.demand.fault:
            return None
        standing = self._state.ledger.claim(asking.pod.uid)
        if standing is not None:
            return frozenset({standing.placement.node}.intersection(names))
        seats = self._seats(gang, asking, asking.demand, names)
        if isinstance(seats, str):
            return seats
        return frozenset(one.placement.node for one in seats).intersection(names)

    def could_go(self, asking: Asking, names: Sequence[NodeName]) -> bool:
        """Its gang could be placed now, the pod on one of ``names``; nothing is reserved."""
        gang = gang_of(asking.pod)
        if gang is None or asking.demand is None or asking.demand.fault:
            return False
        return not isinstance(self._seated(gang, asking, asking.demand, names), str)

    def complete(self, asking: Asking) -> bool:
        """All pods of its gang exist; a pod without a gang is complete."""
        gang = gang_of(asking.pod)
        return gang is None or self._state.members(asking, gang).exist >= gang.size

    def sift(self, asking: Asking, names: Sequence[NodeName]) -> tuple[list[NodeName], Said] | None:
        """Names the pod may go to, and what the others say; ``None`` for a pod of no gang."""
        admitted = self.admit(asking, names)
        if admitted is None:
            return None
        if isinstance(admitted, str):
            fits, text = [], admitted
        else:
            fits = [name for name in names if name in admitted]
            places = ", ".join(sorted(admitted)) or "nodes that are not offered"
            text = f"the gang of pod {asking.pod.name} has its places on {places}"
        failed: dict[str, str] = dict.fromkeys(set(names).difference(fits), text)
        return fits, Said(failed, failed, Counter({Code.GANG: len(failed)}))

    def marks(self, asking: Asking, names: Sequence[NodeName]) -> dict[NodeName, int] | None:
        """The best mark for nodes where a place is kept, 0 for others; ``None``: it has no gang."""
        found = self.sift(asking, names)
        if found is None:
            return None
        return dict.fromkeys(names, 0) | dict.fromkeys(found[0], MAX_SCORE)

    def take(self, asking: Asking, demand: Demand, node: NodeName) -> Placement | str | None:
        """The place of a pod on ``node``, no longer kept: assume it at once.

        Answers why it has none there, or ``None`` for a pod of no gang.
        """
        gang = gang_of(asking.pod)
        if gang is None or demand.fault:
            return None
        seats = self._seats(gang, asking, demand, (node,))
        if isinstance(seats, str):
            return seats
        kept = next(one for one in seats if one.placement.node == node)
        placement = taken(self._state.ledger, kept, demand, self._rules)
        if isinstance(placement, Refusal):
            return sentence(placement)
        self._state.forget(kept.uid)
        return placement

    def _seats(
        self, gang: Gang, asking: Asking, demand: Demand, names: Sequence[NodeName]
    ) -> tuple[Claim, ...] | str:
        """The places of the pods of the gang that have none, kept from now on; or why none."""
        found = self._seated(gang, asking, demand, names)
        if isinstance(found, str):
            return found
        for uid in found.given_up:
            self._state.forget(uid)
        for claim in found.seats:
            self._state.reserve(claim)
        return found.seats

    def _seated(
        self, gang: Gang, asking: Asking, demand: Demand, names: Sequence[NodeName]
    ) -> Seating | str:
        """The places that the gang would get, or why it gets none."""
        ledger, now_ns = self._state.ledger, self._clock()
        members = self._state.members(asking, gang)
        found = seat(
            ledger, gang, demand, frozenset(names), self._rules, members=members, now_ns=now_ns
        )
        if isinstance(found, Shortage | Postponed):
            return found.sentence
        fresh = any(ledger.claim(claim.uid) is None for claim in found.seats)
        pause = self._state.reservation_time.pause(gang.namespace, now_ns) if fresh else 0.0
        return resting(gang, pause).sentence if pause else found
