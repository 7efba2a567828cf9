"""Which cards of a node go together: whole cards, and shares over several, by their links.

The core chooses; here is only what it needs to know of each node, kept between decisions because
reading a matrix takes longer than choosing from it. Where a node says nothing of links, or the
policy has no answer, the lowest indexes are taken, as the original did.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.model import Demand
from gpucore.policy import ChooseGroup, lowest, score
from gpucore.topology.codec import node_matrix
from gpucore.topology.links import Matrix
from gpucore.topology.policies import Group, Impossible, plan, rating
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import INVENTORY, NODE_TOPOLOGY, NODE_TYPE
from gpuextender.state import State

BEST: Final = "best-effort"

_TEXTS: Final = (INVENTORY, NODE_TOPOLOGY, NODE_TYPE)


class _Machine(msgspec.Struct, frozen=True):
    """A node as far as links go, and the texts that say so."""

    texts: tuple[str | None, ...]
    matrix: Matrix | None

    @property
    def kind(self) -> str | None:
        """Its type, for configured sets."""
        return self.texts[-1] if self.texts else None


class Groups:
    """Chooses groups of cards by their links.

    Args:
        policy: of :func:`gpucore.topology.policies.plan`.
    """

    def __init__(self, state: State, *, policy: str) -> None:
        self._state = state
        self._policy = policy
        self._machines: dict[NodeName, _Machine] = {}

    def chooser(self, demand: Demand) -> ChooseGroup | None:
        """How to choose cards for ``demand``; ``None`` where it takes one card of a share."""
        return self._choose if demand.gpus or demand.cards > 1 else None

    def score(self, account: NodeAccount, demand: Demand, policy: str) -> int:
        """How good a node is, 0..10: by the links of the best group where there is one."""
        if demand.gpus < 2 or account.whole_room < demand.gpus:
            return score(account, demand, policy)
        free = [index for index, card in account.cards.items() if card.open and card.empty]
        group = self._plan(account, free, demand.gpus)
        return score(account, demand, policy) if group is None else rating(group)

    def _choose(
        self, account: NodeAccount, free: Sequence[GpuIndex], count: int
    ) -> tuple[GpuIndex, ...]:
        group = self._plan(account, free, count)
        return lowest(account, free, count) if group is None else group.gpus

    def _plan(self, account: NodeAccount, free: Sequence[GpuIndex], count: int) -> Group | None:
        machine = self._machine(account.name)
        if machine.matrix is None or not machine.matrix.links:
            return None
        found = plan(machine.matrix, free, count, policy=self._policy, node_type=machine.kind)
        return None if isinstance(found, Impossible) else found

    def _machine(self, name: NodeName) -> _Machine:
        """What the node says of its links; read again when it says something else."""
        node = self._state.node(name)
        texts = () if node is None else tuple(map(node.annotations.get, _TEXTS))
        known = self._machines.get(name)
        if known is None or known.texts != texts:
            matrix = None if node is None else node_matrix(node, self._state.names)
            known = self._machines[name] = _Machine(texts, matrix)
        return known
