"""What would make room for a pod that waits: the smallest steps, as sentences.

Suggestions only; nothing is moved or deleted. Steps on nodes that take no new pods are not offered.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpucore.account import NodeAccount
from gpucore.cardfit import per_card
from gpucore.cards import CardAccount
from gpucore.explain import cards_named, unit_of
from gpucore.grouping import BY_LINKS
from gpucore.ledger import Ledger
from gpucore.model import Demand, Refusal
from gpucore.units import NodeName, PodUid

NAMED: Final = 3
"""Pods that a sentence names; the others are counted."""


class _Step(NamedTuple):
    """Pods of one card whose end makes room; ordered by how many, then by how much they hold."""

    pods: int
    units: int
    node: NodeName
    card: int
    uids: tuple[PodUid, ...]


def helps(
    demand: Demand,
    ledger: Ledger,
    refused: Mapping[NodeName, Refusal],
    *,
    fits: Sequence[NodeName],
    open_nodes: frozenset[NodeName],
) -> Iterator[str]:
    """Sentences, the smallest step first."""
    if demand.fault:
        yield f"correct the pod: {demand.fault}"
        return
    if fits:
        yield _elsewhere(demand, ledger, fits, open_nodes)
    if open_nodes.intersection(fits):
        return
    accounts = {name: ledger.nodes()[name] for name in refused if name in open_nodes}
    if demand.mem and not demand.gpus:
        yield from _for_share(demand, accounts, fits)
    if demand.gpus:
        yield from _for_cards(demand, accounts)
    if not ledger_offers(ledger, demand):
        kind = "whole cards" if demand.gpus else "shares"
        yield f"no node offers {kind}: label one and see that the device plugin runs there"


def ledger_offers(ledger: Ledger, demand: Demand) -> bool:
    """Some node offers the kind of resource that is asked for."""
    shapes = [account.shape for account in ledger.nodes().values()]
    return any(shape.offers_cards if demand.gpus else shape.offers_shares for shape in shapes)


def _elsewhere(
    demand: Demand, ledger: Ledger, fits: Sequence[NodeName], open_nodes: frozenset[NodeName]
) -> str:
    name = next((name for name in fits if name in open_nodes), None)
    if name is None:
        return f"{fits[0]} has room for it, but takes no new pods: uncordon it or make it ready"
    where = f", on {_best(ledger.nodes()[name], demand.gpus, demand)}" if demand.gpus else ""
    return f"{name} has room for it{where}: what keeps it off is no GPU (the scheduler says what)"


def _for_share(
    demand: Demand, accounts: Mapping[NodeName, NodeAccount], fits: Sequence[NodeName]
) -> Iterator[str]:
    steps = [step for account in accounts.values() for step in _steps(account, demand)]
    if steps:
        step = min(steps)
        account = accounts[step.node]
        claims = [account.claims[uid] for uid in step.uids]
        pods = " and ".join(f"{claim.namespace}/{claim.name}" for claim in claims)
        yield (
            f"it fits card {step.card} of {step.node} once {pods} ends "
            f"({step.units} {unit_of(account)})"
        )
    roomy = max(accounts.values(), key=lambda each: each.share_room, default=None)
    if roomy is not None and 0 < roomy.share_room < per_card(demand)[0]:
        yield f"a share of {roomy.share_room} {unit_of(roomy)} fits now, on {roomy.name}"
    largest = max((account.shape.largest_card for account in accounts.values()), default=0)
    if 0 < largest < per_card(demand)[0] and not fits:
        yield "no card is that large: check the unit (GiB or MiB), or spread it with gpu-count"


def _steps(account: NodeAccount, demand: Demand) -> Iterator[_Step]:
    """The fewest pods to end on each card that is large enough; for a share of one card."""
    mem, _ = per_card(demand)
    if demand.cards > 1 or demand.core or not account.shape.offers_shares:
        return
    for card in account.cards.values():
        if card.healthy and mem <= card.total:
            yield from _step(account, card, mem)


def _step(account: NodeAccount, card: CardAccount, mem: int) -> Iterator[_Step]:
    free, chosen, units = card.total - card.used, [], 0
    by_size = sorted(card.holders.items(), key=lambda pair: (-pair[1].mem, pair[0]))
    for uid, hold in by_size:
        if free >= mem and not card.taken:
            break
        chosen.append(uid)
        units += hold.mem
        free += hold.mem
    if chosen and free >= mem:
        yield _Step(len(chosen), units, account.name, card.index, tuple(chosen))


def _for_cards(demand: Demand, accounts: Mapping[NodeName, NodeAccount]) -> Iterator[str]:
    offering = [account for account in accounts.values() if account.shape.offers_cards]
    steps = [step for account in offering for step in _clearing(account, demand.gpus)]
    if steps:
        step = min(steps)
        claims = accounts[step.node].claims
        names = [f"{claims[uid].namespace}/{claims[uid].name}" for uid in step.uids[:NAMED]]
        more = f" and {step.pods - NAMED} more" if step.pods > NAMED else ""
        ends = "ends" if step.pods == 1 else "end"
        yield f"it fits {step.node} once {', '.join(names)}{more} {ends}"
    roomy = max(offering, key=lambda each: each.whole_room, default=None)
    if roomy is None:
        return
    missing = demand.gpus - roomy.whole_room
    short = f"{roomy.name} is {missing} free card{'s' if missing > 1 else ''} short"
    yield f"{short}; 'gpushare defrag' says what to move"
    if roomy.whole_room > 0:
        yield f"{_best(roomy, roomy.whole_room, demand)} can be had now, on {roomy.name}"


def _clearing(account: NodeAccount, wanted: int) -> Iterator[_Step]:
    """The pods of the cards that are cleared with the fewest, so that ``wanted`` are free."""
    cards = [card for card in account.cards.values() if card.gpu is not None and card.healthy]
    cards.sort(key=lambda card: (len(card.holders), card.used, card.index))
    chosen = cards[:wanted]
    uids = tuple(dict.fromkeys(uid for card in chosen for uid in card.holders))
    if len(chosen) == wanted and uids:
        held = sum(card.used for card in chosen)
        yield _Step(len(uids), held, account.name, chosen[0].index, uids)


def _best(account: NodeAccount, count: int, demand: Demand) -> str:
    """The best group that is free, and its score where links are known."""
    free = [index for index, card in account.cards.items() if card.open and card.empty]
    group = BY_LINKS.whole(account, free, count, demand)
    score = account.shape.matrix.sum_of(group)
    return f"{cards_named(group)} (score {score})" if score else cards_named(group)
