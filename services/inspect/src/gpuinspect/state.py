"""From the objects of a cluster to the figures people see, through the core's one ledger.

What is shown is therefore what the scheduler extender accounts for. The only rule of its own is
the unit of a node whose plugin does not say it: more than 100 units a card are taken for MiB, as
the original took them (and was wrong for cards of 101 GiB and more, which is why ours say it).
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.explain import unit_of
from gpucore.ledger import Ledger, rebuilt
from gpucore.model import Claim, Gpu
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit, NodeName
from gpucore.wire.names import UNHEALTHY_KEY, UNHEALTHY_NAMESPACE, Names
from gpucore.wire.nodes import Node, kept_by_plugin, unhealthy_indexes, unhealthy_node
from gpucore.wire.quantity import amount
from gpuinspect.errors import NotFoundError
from gpuinspect.snapshots import Snapshot
from gpuinspect.uncollected import uncollected
from gpuinspect.views import CardView, ClusterView, NodeView, PodView


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: Mapping[str, str] | None = None


def books(snapshot: Snapshot, names: Names) -> Ledger:
    """The ledger that these objects give.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
    """
    with uncollected():
        ledger = rebuilt(names, map(_whole, snapshot.nodes), snapshot.pods)
    for raw in snapshot.all("ConfigMap"):
        config_map = msgspec.json.decode(raw, type=_ConfigMap)
        metadata = config_map.metadata
        node = unhealthy_node(metadata.name)
        if metadata.namespace != UNHEALTHY_NAMESPACE or kept_by_plugin(metadata.labels):
            continue
        if node is not None:
            text = (config_map.data or {}).get(UNHEALTHY_KEY, "")
            ledger.unhealthy_changed(node, unhealthy_indexes(text))
    return ledger


def _whole(node: Node) -> Node:
    """Kubelet always says both; a file made by hand may say what the original read, and no more."""
    if node.capacity:
        return node
    return msgspec.structs.replace(node, capacity=node.allocatable)


def shares(snapshot: Snapshot, names: Names, *, only: Collection[str] = ()) -> ClusterView:
    """The nodes that offer shares, by name; or those named by ``only``, whatever they offer.

    Raises:
        NotFoundError: there is no node of a name.
        WireError: as :func:`books`.
    """
    return shown(books(snapshot, names), snapshot.nodes, only=only)


def shown(ledger: Ledger, nodes: Iterable[Node], *, only: Collection[str] = ()) -> ClusterView:
    """As :func:`shares`, from books that are kept already.

    Raises:
        NotFoundError: there is no node of a name.
    """
    chosen = [each for each in nodes if _wanted(each, ledger.names, only)]
    for name in only:
        if all(each.name != name for each in chosen):
            raise NotFoundError(f'nodes "{name}" not found')
    chosen.sort(key=lambda each: each.name)
    return view(ledger, chosen, ledger.names)


def _wanted(node: Node, names: Names, only: Collection[str]) -> bool:
    if only:
        return node.name in only
    offered = (node.allocatable.get(names.gpu_mem), node.capacity.get(names.gpu_mem))
    return any(amount(text) > 0 for text in offered if text is not None)


def view(ledger: Ledger, nodes: Iterable[Node], names: Names) -> ClusterView:
    """These nodes with every amount in one unit: theirs where they agree, else MiB."""
    accounts = [(node, _account(ledger, node.name)) for node in nodes]
    units = {unit_of(account) for _, account in accounts if account.cards}
    unit = units.pop() if len(units) == 1 else MIB if units else GIB
    return ClusterView(tuple(_node(*pair, unit=unit, names=names) for pair in accounts), unit)


def _account(ledger: Ledger, name: NodeName) -> NodeAccount:
    account = ledger.node(name)
    return NodeAccount(name) if account is None else account


def _node(node: Node, account: NodeAccount, *, unit: MemoryUnit, names: Names) -> NodeView:
    own = unit_of(account) if account.cards else unit
    scale = own.mib // unit.mib
    cards = [_card(card, card.gpu, scale) for card in account.cards.values() if card.gpu]
    lost = sum(card.used for card in account.cards.values() if card.gpu is None)
    pods = (_pod(claim, account, scale) for claim in account.claims.values())
    return NodeView(
        name=node.name,
        address=node.address,
        cards=tuple(cards),
        total=_total(node, account, names) * scale,
        used=sum(card.used for card in cards) + (lost + account.pending) * scale,
        pending=account.pending * scale,
        lost=lost * scale,
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))),
        ready=node.ready,
        cordoned=node.unschedulable,
        explicit=account.unit is not None,
        unit=str(own),
        driver=account.inventory.driver if account.inventory else "",
    )


def _total(node: Node, account: NodeAccount, names: Names) -> int:
    """Units of the cards; of a node with an original plugin, what kubelet can allocate."""
    if account.unit is None:
        return amount(node.allocatable.get(names.gpu_mem, "0"))
    return account.total_units


def _card(card: CardAccount, gpu: Gpu, scale: int) -> CardView:
    return CardView(
        index=card.index,
        total=card.total * scale,
        used=_used(card) * scale,
        core=card.core_used,
        whole=_is_whole(card),
        healthy=card.healthy,
        mode="mig" if gpu.mig else gpu.rung.value,
        model=gpu.model,
        uuid=gpu.uuid,
        memory_mib=gpu.memory_mib,
    )


def _is_whole(card: CardAccount) -> bool:
    return any(hold.whole for hold in card.holders.values())


def _used(card: CardAccount) -> int:
    """Units in use; a card that is held whole has none left to share."""
    return max(card.used, card.total) if _is_whole(card) else card.used


def _pod(claim: Claim, account: NodeAccount, scale: int) -> PodView:
    return PodView(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        cards={index: units * scale for index, units in _held(claim, account).items()},
        core=claim.placement.core,
        group=claim.placement.group,
        pending=account.shape.counted(claim.pending, claim.unit) * scale,
        state=claim.state.value,
        faults=claim.faults,
    )


def _held(claim: Claim, account: NodeAccount) -> dict[GpuIndex, int]:
    held = {}
    for index, card in account.cards.items():
        hold = card.holders.get(claim.uid)
        if hold is not None:
            held[index] = card.total if hold.whole else hold.mem
    return held
