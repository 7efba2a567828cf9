"""``inspect`` of the topology extender of 2019, as ``kubectl inspect gpu`` reads it.

It counts whole GPUs, not units of memory. With ``detail`` each node has its links as numbers: 1 to
6 for the kinds of PCIe paths, 7 to 12 for one to six NVLinks, and 0 for a GPU itself, an unknown
link and, as the original wrote, every link of a GPU that is in use.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.grouping import STATIC, Grouping
from gpucore.ledger import Ledger
from gpucore.units import NodeName
from gpuextender.slices import Slices

_PATHS: Final = {"PSB": 1, "PIX": 2, "PXB": 3, "PHB": 4, "NODE": 5, "SYS": 6}
_NVLINK: Final = "NV"
_MOST_NVLINKS: Final = 6


class TopologyNode(
    msgspec.Struct,
    omit_defaults=True,
    rename={"total": "totalGPU", "used": "usedGPU", "static_config": "staticConfig"},
):
    """A node; whole GPUs."""

    name: str
    total: int
    used: int
    topology: list[list[int]] | None = None
    type: str = ""
    static_config: dict[str, list[list[int]]] | None = None


class TopologyInspection(msgspec.Struct, omit_defaults=True):
    """The whole answer."""

    nodes: list[TopologyNode] | None
    error: str = ""
    policy: str = ""


class TopologyInspector:
    """Answers for one ledger.

    Args:
        grouping: how GPUs that go together are chosen.
    """

    def __init__(self, ledger: Ledger, grouping: Grouping) -> None:
        self._ledger = ledger
        self._grouping = grouping
        self._policy = grouping.policy.replace("-", "_")  # the original's spelling

    async def everything(self, slices: Slices, *, detail: bool) -> TopologyInspection:
        """Every node that offers whole GPUs, or on which pods hold some."""
        nodes = []
        for account in sorted(self._ledger.nodes().values(), key=lambda account: account.name):
            if account.shape.offers_cards or _used(account):
                nodes.append(self._node(account, detail=detail))
                await slices.breathe()
        return TopologyInspection(nodes, policy=self._policy)

    def one(self, name: str, *, detail: bool) -> TopologyInspection:
        """One node, whatever it offers."""
        account = self._ledger.node(NodeName(name))
        if account is None:
            return TopologyInspection(None, f"node {name} is not known")
        return TopologyInspection([self._node(account, detail=detail)], policy=self._policy)

    def _node(self, account: NodeAccount, *, detail: bool) -> TopologyNode:
        node = TopologyNode(account.name, len(account.cards), _used(account))
        if detail:
            node.topology = _links(account)
            node.type = account.shape.node_type
            node.static_config = self._sets(account.shape.node_type)
        return node

    def _sets(self, node_type: str) -> dict[str, list[list[int]]] | None:
        found = self._grouping.static.get(node_type)
        if found is None or self._grouping.policy != STATIC:
            return None
        sets: Mapping[int, tuple[tuple[int, ...], ...]] = found.sets
        return {str(size): [list(group) for group in groups] for size, groups in sets.items()}


def _used(account: NodeAccount) -> int:
    return sum(1 for card in account.cards.values() if not card.empty)


def _links(account: NodeAccount) -> list[list[int]]:
    free = {index for index, card in account.cards.items() if card.empty}
    matrix, indexes = account.shape.matrix, list(account.cards)
    return [
        [_code(matrix.between(a, b)) if a != b and {a, b} <= free else 0 for b in indexes]
        for a in indexes
    ]


def _code(links: tuple[str, ...]) -> int:
    """NVLinks before the PCIe path."""
    for link in links:
        count = link.removeprefix(_NVLINK)
        if count != link and count.isdecimal():
            return _PATHS["SYS"] + min(int(count), _MOST_NVLINKS)
    return next((_PATHS[link] for link in links if link in _PATHS), 0)
