"""Pods whose end makes room for a pod that waits: the fewest of one GPU, or of one node's GPUs.

Every step is tried on a copy of the node before it is given, so that no other rule (isolation mode,
cpu, taints) still keeps the pod off.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from gpucore.account import NodeAccount
from gpucore.cardfit import CURABLE, per_card, refusal_of_card
from gpucore.cards import CardAccount
from gpucore.model import Demand
from gpucore.scheduling.candidates import Candidates, PendingPod
from gpucore.units import GpuIndex, NodeName, PodUid

TRIED: Final = 200
"""Steps that are tried, the smallest first, before none is given."""


class Step(NamedTuple):
    """Pods of one GPU whose end makes room; ordered by how many, then by how much they hold."""

    pods: int
    units: int
    node: NodeName
    card: GpuIndex
    uids: tuple[PodUid, ...]


def smallest(steps: Iterable[Step], pod: PendingPod, cluster: Candidates) -> Step | None:
    """The smallest step after which the pod is admitted."""
    return next((s for s in islice(sorted(steps), TRIED) if _suffices(s, pod, cluster)), None)


def _suffices(step: Step, pod: PendingPod, cluster: Candidates) -> bool:
    account = cluster.admits_without(step.node, pod, step.uids)
    if account is None:
        return False
    return bool(pod.demand.gpus) or refusal_of_card(account.cards[step.card], pod.demand) is None


def for_share(account: NodeAccount, demand: Demand) -> Iterator[Step]:
    """The fewest pods to end on each GPU that is large enough; for a share of one GPU."""
    mem, _ = per_card(demand)
    if demand.cards > 1 or demand.core or not account.shape.offers_shares:
        return
    for card in account.cards.values():
        refusal = refusal_of_card(card, demand)
        if refusal is not None and refusal.code in CURABLE:
            yield from _clearing_card(account, card, mem, alone=demand.whole_device)


def _clearing_card(
    account: NodeAccount, card: CardAccount, mem: int, *, alone: bool
) -> Iterator[Step]:
    free, chosen, units = card.total - card.used, list[PodUid](), 0
    by_size = sorted(card.holders.items(), key=lambda pair: (-pair[1].mem, pair[0]))
    for uid, hold in by_size:
        if free >= mem and not card.taken and not alone:
            break
        chosen.append(uid)
        units += hold.mem
        free += hold.mem
    if chosen and free >= mem:
        yield Step(len(chosen), units, account.name, card.index, tuple(chosen))


def for_gpus(account: NodeAccount, wanted: int) -> Iterator[Step]:
    """The pods of the GPUs that are cleared with the fewest, so that ``wanted`` are free."""
    cards = [card for card in account.cards.values() if card.gpu is not None and card.healthy]
    cards.sort(key=lambda card: (len(card.holders), card.used, card.index))
    chosen = cards[:wanted]
    uids = tuple(dict.fromkeys(uid for card in chosen for uid in card.holders))
    if len(chosen) == wanted and uids:
        held = sum(card.used for card in chosen)
        yield Step(len(uids), held, account.name, chosen[0].index, uids)
