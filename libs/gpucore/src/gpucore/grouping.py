"""Which cards of a node go together: the links of its cards turned into a choice for placement.

Used for whole cards, and for shares over several cards. What fits is never refused for its links:
where a node says nothing of them the lowest indexes are taken, and where ``static`` has no
configured set free ``best-effort`` chooses. Not promised: the best group of cards that are not free
now; nothing moves.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.model import Demand
from gpucore.topology.links import Matrix
from gpucore.topology.policies import MAX_RATING, Group, Impossible, plan, rating
from gpucore.topology.static import StaticSets
from gpucore.units import GpuIndex

BEST_EFFORT: Final = "best-effort"
STATIC: Final = "static"
SIMPLE: Final = "simple"


class Grouping(msgspec.Struct, frozen=True):
    """How cards that go together are chosen.

    Attributes:
        policy: a name of :data:`gpucore.topology.policies.POLICIES`; a pod's own overrules it.
        static: configured sets by node type, over those that are shipped.
    """

    policy: str = BEST_EFFORT
    static: Mapping[str, StaticSets] = {}

    def whole(
        self, account: NodeAccount, free: Sequence[GpuIndex], count: int, demand: Demand
    ) -> tuple[GpuIndex, ...]:
        """``count`` of the cards ``free`` (ascending, enough), in the order containers see them."""
        return self._group(account, free, count, demand).gpus

    def shared(
        self, account: NodeAccount, ranked: Sequence[GpuIndex], demand: Demand
    ) -> tuple[GpuIndex, ...]:
        """Cards for a share over several, from those that can take their part.

        The group that the topology policy would choose says how well joined the cards must be; of
        the groups that are, it takes the one with the card policy's first choices in it.

        Args:
            ranked: the cards that can take it, the card policy's first choice first; enough.
        """
        name, count = self._name(demand), demand.cards
        if name == SIMPLE or count == 1 or not _known(account.shape.matrix):
            return tuple(sorted(ranked[:count]))
        free = sorted(ranked)
        best = self._group(account, free, count, demand)
        if name == STATIC:
            return best.gpus
        settled: list[GpuIndex] = []
        for card in ranked:
            if card not in best.gpus and len(settled) < count:
                other = self._group(account, free, count, demand, require=(*settled, card))
                best = other if other.score >= best.score else best
            if card in best.gpus:
                settled.append(card)
        return best.gpus

    def rate(
        self, account: NodeAccount, demand: Demand, cards: Sequence[GpuIndex], packing: float
    ) -> float:
        """How good ``cards`` are for ``demand``, 0 to 1: by their links where those matter.

        A node whose links nobody knows is rated by ``packing``, but never above a group that is
        joined across CPU sockets: it must not win over cards that are known to be joined.

        Args:
            packing: what the card policy says, 0 to 1.
        """
        matrix = account.shape.matrix
        if len(cards) < 2 or self._name(demand) == SIMPLE:
            return packing
        if not matrix.links:
            return packing / MAX_RATING
        return rating(Group(tuple(cards), matrix.sum_of(cards), 0)) / MAX_RATING

    def _name(self, demand: Demand) -> str:
        return demand.topology or self.policy

    def _group(
        self,
        account: NodeAccount,
        free: Sequence[GpuIndex],
        count: int,
        demand: Demand,
        require: Sequence[GpuIndex] = (),
    ) -> Group:
        shape, name = account.shape, self._name(demand)
        if name != STATIC and (count == 1 or not _known(shape.matrix)):
            return Group(tuple(free[:count]), 0, 0)
        for policy in (name, BEST_EFFORT):
            group = plan(
                shape.matrix,
                free,
                count,
                require,
                policy=policy,
                node_type=shape.node_type,
                static=self.static,
            )
            if not isinstance(group, Impossible):
                return group
        raise ValueError(f"{count} of {len(free)} cards: the caller found that they fit")


BY_LINKS: Final = Grouping()
"""The choice where nobody says otherwise."""


def _known(matrix: Matrix) -> bool:
    """Somebody has said how the cards are joined, or where they sit."""
    return bool(matrix.links or matrix.numa)
