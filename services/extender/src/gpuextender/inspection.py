"""The original's ``inspect``: nodes, their cards, who is on them; names of fields are law.

Figures are the ledger's. Unlike the original's, ``usedGPU`` of a node and the pods of its cards
agree, nodes show before anybody asked about them, and an unknown node is a clean error.
"""

from collections.abc import Iterable

import msgspec

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.ledger import Ledger
from gpucore.units import NodeName
from gpuextender.slices import Slices


class PodUse(msgspec.Struct, rename={"used_gpu": "usedGPU"}):
    """A pod on a card; units."""

    name: str
    namespace: str
    used_gpu: int


class CardUse(msgspec.Struct, rename={"total_gpu": "totalGPU", "used_gpu": "usedGPU"}):
    """A card; units."""

    id: int
    total_gpu: int
    used_gpu: int
    pods: list[PodUse]


class NodeUse(msgspec.Struct, rename={"total_gpu": "totalGPU", "used_gpu": "usedGPU"}):
    """A node; units."""

    name: str
    total_gpu: int
    used_gpu: int
    devs: list[CardUse]


class Inspection(msgspec.Struct, omit_defaults=True):
    """The whole answer; ``error`` is left out when there is none."""

    nodes: list[NodeUse] | None
    error: str = ""


async def inspect_all(ledger: Ledger, slices: Slices) -> Inspection:
    """Every node that offers GPU memory or is held to give some."""
    nodes = []
    for account in sorted(ledger.nodes().values(), key=lambda account: account.name):
        if _shared(account):
            nodes.append(_node(account))
            await slices.breathe()
    return Inspection(nodes)


def inspect_node(ledger: Ledger, name: str) -> Inspection:
    """One node, whatever it offers."""
    account = ledger.node(NodeName(name))
    if account is None:
        return Inspection(None, f"node {name} is not known")
    return Inspection([_node(account)])


def _shared(account: NodeAccount) -> bool:
    return account.shape.offers_shares or bool(account.claims)


def _node(account: NodeAccount) -> NodeUse:
    return NodeUse(
        account.name,
        account.total_units,
        account.used_units,
        [_card(account, card) for card in account.cards.values()],
    )


def _card(account: NodeAccount, card: CardAccount) -> CardUse:
    pods: Iterable[PodUse] = (
        PodUse(account.claims[uid].name, account.claims[uid].namespace, hold.mem)
        for uid, hold in card.holders.items()
    )
    return CardUse(card.index, card.total, card.used, list(pods))
