"""The nodes that kube-scheduler offers for the pods of a PodGroup, kind by kind.

kube-scheduler calls the extender with the nodes that pass its own filters, such as CPU and memory:
pods of one kind, with equal requests, are offered the same ones. So a plan for the whole group
takes the nodes of each pod from the offers for its kind. It is made before kube-scheduler has
called for every kind. For the others it goes by the last offer of an earlier cycle, or by that for
pods which select the same nodes. Neither is certain, as nodes come and pods end: if no plan is
found, those pods may go to every node.
"""

from collections.abc import Collection, Sequence
from typing import Final

from gpucore.gang.members import GroupMember, Like, Nodes
from gpucore.gang.node_sets import NodeSet, NodeSets
from gpucore.units import NodeName

MOST_KINDS: Final = 16
"""Kinds of pods whose nodes are remembered: each pod with volumes is a kind of its own."""


class GroupOffers:
    """What was offered for the pods of one group last.

    Args:
        sets: of the nodes that were offered, which all groups share.
    """

    def __init__(self, sets: NodeSets) -> None:
        self._sets = sets
        self._offers: dict[Like, NodeSet] = {}
        self._certain = set[Like]()

    def __len__(self) -> int:
        """Number of kinds that are remembered."""
        return len(self._offers)

    def begin(self) -> None:
        """Another cycle begins: what was offered before may be out of date."""
        self._certain.clear()

    def add(self, member: GroupMember, names: frozenset[NodeName]) -> None:
        """Remember what a pod was offered, for :data:`MOST_KINDS` kinds: those of the last calls.

        kube-scheduler calls for a nominated pod with its node alone, which says nothing of others.
        """
        if len(names) == 1 and member.nominated in names:
            return
        self._offers.pop(member.like, None)
        self._offers[member.like] = self._sets.of(names)
        self._certain.add(member.like)
        if len(self._offers) > MOST_KINDS:
            oldest = next(iter(self._offers))
            del self._offers[oldest]
            self._certain.discard(oldest)

    def nodes(
        self,
        members: Sequence[GroupMember],
        names: frozenset[NodeName],
        every: Collection[NodeName],
    ) -> list[Nodes]:
        """The nodes for a plan, and for a second one where the first goes by what is not certain.

        Args:
            members: pods to plan, the one being scheduled first, which is offered ``names``.
            every: all nodes.
        """
        mine = members[0].uid
        offers = self._names(names)
        certain = {like: offers[like] for like in self._certain}
        selecting = {like[-1]: offered for like, offered in offers.items()}

        def likely(one: GroupMember) -> Collection[NodeName]:
            if one.uid == mine:
                return names
            return offers.get(one.like, selecting.get(one.kind, every))

        def possible(one: GroupMember) -> Collection[NodeName]:
            return names if one.uid == mine else certain.get(one.like, every)

        if all(likely(one) is possible(one) for one in members):
            return [possible]
        return [likely, possible]

    def _names(self, names: frozenset[NodeName]) -> dict[Like, frozenset[NodeName]]:
        """The names of each offer: one object for equal offers, ``names`` among them."""
        known = {self._sets.of(names).key: names}
        for one in self._offers.values():
            if one.key not in known:
                known[one.key] = one.names()
        return {like: known[one.key] for like, one in self._offers.items()}
