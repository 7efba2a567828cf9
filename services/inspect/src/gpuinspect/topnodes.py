"""Arena's view of a cluster: whole cards a node, shares counted as fractions of cards.

All nodes are shown, those with NVIDIA's own plugin and those without GPUs too. The ledger says what
is held of our resources; of ``nvidia.com/gpu`` the pods' limits do, as nothing else knows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.ledger import Ledger
from gpucore.model import Claim
from gpucore.units import NodeName
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node
from gpucore.wire.podspec import Pod
from gpucore.wire.quantity import amount
from gpuinspect.errors import InspectError, NotFoundError
from gpuinspect.prometheus import GpuFigures
from gpuinspect.snapshots import Snapshot
from gpuinspect.state import books

NVIDIA_GPU: Final = "nvidia.com/gpu"
MIB_BYTES: Final = 1 << 20
_ROLE: Final = "node-role.kubernetes.io/"
_OLD_ROLE: Final = "kubernetes.io/role"


KINDS: Final = ("none", "exclusive", "topology", "share")
"""What arena calls GPU modes: no GPUs, NVIDIA's own resource, whole cards of ours, shares."""


class TwoKindsError(InspectError):
    """A node offers its cards twice: to NVIDIA's plugin and to ours."""


class TopPod(msgspec.Struct, frozen=True):
    """A pod with GPUs; ``cards`` is how many it holds, a share as a fraction of one."""

    namespace: str
    name: str
    cards: Fraction


class TopGpu(msgspec.Struct, frozen=True):
    """A GPU: its memory, how much of it is allocated, and what Prometheus says of it.

    Attributes:
        used_bytes: memory in use; ``None`` where Prometheus does not know the GPU.
        utilization: percent; ``None`` as above, and where no dcgm-exporter runs.
    """

    index: int
    uuid: str
    total_bytes: int
    allocated_bytes: int
    used_bytes: float | None = None
    utilization: float | None = None


class TopNode(msgspec.Struct, frozen=True):
    """One node: cards there are, cards in use, cards that are sick.

    Attributes:
        kinds: of :data:`KINDS` that the node is of.
        gpus: those of our inventory, by index.
    """

    name: str
    address: str
    role: str
    ready: bool
    total: int
    allocated: Fraction
    unhealthy: int = 0
    shareable: bool = False
    kinds: frozenset[str] = frozenset()
    pods: tuple[TopPod, ...] = ()
    gpus: tuple[TopGpu, ...] = ()


def top_nodes(
    snapshot: Snapshot, names: Names, *, only: Collection[str] = (), kind: str = ""
) -> tuple[TopNode, ...]:
    """Every node by name.

    Args:
        snapshot: the cluster.
        names: of the resources.
        only: names of nodes; empty for all.
        kind: one of :data:`KINDS`; empty for all.

    Raises:
        NotFoundError: there is no node of a name.
        TwoKindsError: a node offers both kinds of resources.
    """
    ledger = books(snapshot, names)
    users = _nvidia_pods(snapshot.pods)
    known = {node.name: node for node in snapshot.nodes}
    for name in only:
        if name not in known:
            raise NotFoundError(f'nodes "{name}" not found')
    chosen = (known[NodeName(name)] for name in sorted(set(only) or known))
    found = (_top_node(each, ledger, users.get(each.name, ()), names) for each in chosen)
    return tuple(node for node in found if not kind or kind in node.kinds)


def _nvidia_pods(pods: Iterable[Pod]) -> Mapping[NodeName, list[TopPod]]:
    found: dict[NodeName, list[TopPod]] = {}
    for pod in pods:
        asked = sum(amount(box.limits.get(NVIDIA_GPU, "0")) for box in pod.containers)
        if asked and pod.node and not pod.finished:
            found.setdefault(pod.node, []).append(TopPod(pod.namespace, pod.name, Fraction(asked)))
    return found


def _top_node(node: Node, ledger: Ledger, users: Iterable[TopPod], names: Names) -> TopNode:
    foreign = amount(node.capacity.get(NVIDIA_GPU, "0"))
    account = ledger.node(node.name) or NodeAccount(node.name)
    if foreign and account.shape.offers_shares:
        raise TwoKindsError(
            f"{NVIDIA_GPU} and {names.gpu_mem} are both used in node {node.name} ."
            "Please use one kind resource of them"
        )
    pods = tuple(sorted([*users, *_holders(account)], key=lambda pod: (pod.namespace, pod.name)))
    cards = [card for card in account.cards.values() if card.gpu is not None]
    return TopNode(
        name=node.name,
        address=node.address,
        role=_role(node),
        ready=node.ready,
        total=foreign + len(cards),
        allocated=sum((pod.cards for pod in pods), Fraction(0)),
        unhealthy=sum(not card.healthy for card in cards),
        shareable=account.shape.offers_shares,
        kinds=_kinds(account, foreign),
        pods=pods,
        gpus=tuple(_gpus(account)),
    )


def with_figures(nodes: Iterable[TopNode], figures: GpuFigures) -> tuple[TopNode, ...]:
    """The nodes with what Prometheus says of their GPUs."""
    return tuple(_with_figures(node, figures) for node in nodes)


def _with_figures(node: TopNode, figures: GpuFigures) -> TopNode:
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            used_bytes=figures.used_bytes.get(gpu.uuid),
            utilization=figures.utilization.get(gpu.uuid),
        )
        for gpu in node.gpus
    )
    return msgspec.structs.replace(node, gpus=gpus)


def _gpus(account: NodeAccount) -> Iterator[TopGpu]:
    unit = account.shape.unit
    for index, card in sorted(account.cards.items()):
        if card.gpu is None:
            continue
        units_mib = unit.mib if unit else 0
        total = card.gpu.memory_mib or card.gpu.units * units_mib
        exclusive = any(hold.whole or hold.alone for hold in card.holders.values())
        allocated = total if exclusive else card.used * units_mib
        yield TopGpu(index, card.gpu.uuid, total * MIB_BYTES, allocated * MIB_BYTES)


def _kinds(account: NodeAccount, foreign: int) -> frozenset[str]:
    offers = {
        "exclusive": foreign > 0,
        "topology": account.shape.offers_cards,
        "share": account.shape.offers_shares,
    }
    return frozenset(kind for kind, offered in offers.items() if offered) or frozenset({"none"})


def _holders(account: NodeAccount) -> Iterator[TopPod]:
    for claim in account.claims.values():
        yield TopPod(claim.namespace, claim.name, _cards_held(claim, account))


def _cards_held(claim: Claim, account: NodeAccount) -> Fraction:
    parts = (_part(card, claim) for card in account.cards.values() if claim.uid in card.holders)
    pending = account.shape.counted(claim.pending, claim.unit)
    largest = account.shape.largest_card
    unplaced = Fraction(pending, largest) if largest else Fraction(0)
    return sum(parts, unplaced + claim.pending_gpus)


def _part(card: CardAccount, claim: Claim) -> Fraction:
    hold = card.holders[claim.uid]
    if hold.whole:
        return Fraction(1)
    return Fraction(hold.mem, card.total) if card.total else Fraction(0)


def _role(node: Node) -> str:
    roles = [key.removeprefix(_ROLE) for key in node.labels if key.startswith(_ROLE)]
    roles += [node.labels[_OLD_ROLE]] if _OLD_ROLE in node.labels else []
    return ",".join(sorted({role for role in roles if role})) or "<none>"
