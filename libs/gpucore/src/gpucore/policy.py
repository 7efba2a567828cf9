"""Policies as data over one loop: which of the cards that can take a demand shall take it.

A policy is a key: the cards with the smallest key are chosen, ties go to the lowest index. Scores
of nodes are 0..10 as an extender returns them, higher is better, 0 for a node that cannot.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.cardfit import per_card, refusal_of_card
from gpucore.cards import CardAccount
from gpucore.fit import fit
from gpucore.fragmentation import TYPICAL, Workload, growth
from gpucore.fullness import part_in_use, rating
from gpucore.grouping import BY_LINKS, Grouping
from gpucore.model import CORE_PER_CARD, Cards, Demand, Placement, Refusal
from gpucore.units import GpuIndex
from gpucore.wire.placements import split_evenly

MAX_SCORE: Final = 10
Key = Callable[[NodeAccount, CardAccount, Demand], tuple[float, ...]]
Rate = Callable[[NodeAccount, Demand, Placement], tuple[float, ...]]
ChooseGroup = Callable[[NodeAccount, Sequence[GpuIndex], int], tuple[GpuIndex, ...]]


class Policy(msgspec.Struct, frozen=True):
    """How to choose.

    Attributes:
        key: of a card for a share; the smallest is chosen.
        rate: of a placement on its node; first 0 (worst) to 1 (best), then what breaks ties.
    """

    name: str
    key: Key
    rate: Rate


def place(
    account: NodeAccount,
    demand: Demand,
    policy: str | Policy = "",
    *,
    grouping: Grouping = BY_LINKS,
    choose_group: ChooseGroup | None = None,
) -> Placement | Refusal:
    """Where on this node ``demand`` would sit.

    Args:
        account: the books of the node, which stay as they are.
        demand: what is asked.
        policy: a name is the default that the pod's own policy and the node's label overrule; a
            :class:`Policy` is used as it is.
        grouping: picks whole cards, and the cards of a share over several, by their links.
        choose_group: picks n of the cards that can be taken (free ones for whole cards) instead.
    """
    refusal = fit(account, demand)
    if refusal is not None:
        return refusal
    if demand.gpus:
        return _whole(account, demand, grouping, choose_group)
    chosen = resolve(account, demand, policy)
    return _share(account, demand, chosen, grouping, choose_group)


def score(
    account: NodeAccount,
    demand: Demand,
    policy: str | Policy = "",
    *,
    grouping: Grouping = BY_LINKS,
) -> int:
    """How good this node is for ``demand``, 0..10; 0 also where it does not fit."""
    chosen = resolve(account, demand, policy)
    placement = place(account, demand, chosen, grouping=grouping)
    if isinstance(placement, Refusal):
        return 0
    best, *_ = rate(account, demand, placement, chosen, grouping=grouping)
    return points(best)


def points(rated: float) -> int:
    """A rating from 0 to 1 as a scheduler reads it."""
    return round(MAX_SCORE * rated)


def rate(
    account: NodeAccount,
    demand: Demand,
    placement: Placement,
    policy: Policy,
    *,
    grouping: Grouping = BY_LINKS,
) -> tuple[float, ...]:
    """How good a placement is: 0 to 1 (several cards by their links), then what breaks ties."""
    packing, *ties = policy.rate(account, demand, placement)
    packing = min(max(packing, 0.0), 1.0)
    cards = placement.group or tuple(placement.mem or placement.core)
    return grouping.rate(account, demand, cards, packing), packing, *ties


def resolve(account: NodeAccount, demand: Demand, policy: str | Policy) -> Policy:
    """The policy that holds: a :class:`Policy` as it is; else the pod's, node's or default name."""
    if isinstance(policy, Policy):
        return policy
    return POLICIES[demand.policy or account.shape.policy or policy or "binpack"]


def _whole(
    account: NodeAccount, demand: Demand, grouping: Grouping, choose: ChooseGroup | None
) -> Placement:
    free = [i for i, card in account.cards.items() if card.open and card.empty]
    if choose is None:
        group = grouping.whole(account, free, demand.gpus, demand)
    else:
        group = choose(account, free, demand.gpus)
    return Placement(account.name, group=group)


def _share(
    account: NodeAccount,
    demand: Demand,
    policy: Policy,
    grouping: Grouping,
    choose: ChooseGroup | None,
) -> Placement:
    cards = [c for c in account.cards.values() if refusal_of_card(c, demand) is None]
    if choose is None:
        cards.sort(key=lambda card: policy.key(account, card, demand))
        chosen = grouping.shared(account, [card.index for card in cards], demand)
    else:
        chosen = choose(account, [card.index for card in cards], demand.cards)
    mem, core = per_card(demand)
    containers = split_evenly([ask.mem for ask in demand.containers], chosen)
    return Placement(account.name, _on_each(chosen, mem), _on_each(chosen, core), containers)


def _on_each(cards: Sequence[GpuIndex], amount: int) -> Cards:
    return dict.fromkeys(cards, amount) if amount else {}


def _least_free(account: NodeAccount, card: CardAccount, demand: Demand) -> tuple[float, ...]:
    """Best fit: what is left after the demand is smallest; by compute where no memory is asked."""
    del account
    return (card.free if demand.mem else card.core_free,)


def _most_free(account: NodeAccount, card: CardAccount, demand: Demand) -> tuple[float, ...]:
    return tuple(-part for part in _least_free(account, card, demand))


def _fullness(account: NodeAccount, demand: Demand, placement: Placement) -> tuple[float, ...]:
    """Part of the node's cards that is in use once the demand is on it."""
    del demand
    return (_rated(account, placement, spread=False),)


def _emptiness(account: NodeAccount, demand: Demand, placement: Placement) -> tuple[float, ...]:
    del demand
    return (_rated(account, placement, spread=True),)


def _rated(account: NodeAccount, placement: Placement, *, spread: bool) -> float:
    parts = [_used_part(c, placement) for c in account.cards.values() if c.gpu is not None]
    return rating(sum(parts), len(parts), spread=spread)


def _used_part(card: CardAccount, placement: Placement) -> float:
    if card.taken or card.index in placement.group:
        return 1.0
    mem = card.used + placement.mem.get(card.index, 0)
    core = card.core_used + placement.core.get(card.index, 0)
    return part_in_use(card.total, mem, core / CORE_PER_CARD)


def fragmentation_policy(workload: Workload, after: Workload | None = None) -> Policy:
    """Least growth of fragmentation under ``workload``; best fit among equal cards.

    Args:
        workload: the work that usually comes.
        after: as in :func:`gpucore.fragmentation.growth`.
    """

    def key(account: NodeAccount, card: CardAccount, demand: Demand) -> tuple[float, float]:
        mem, core = per_card(demand)
        placement = Placement(account.name, {card.index: mem}, {card.index: core})
        return round(growth(account, placement, workload, after), 9), card.free

    def rate(account: NodeAccount, demand: Demand, placement: Placement) -> tuple[float, ...]:
        """One half where fragmentation stays as it is, more where it falls; then fullness."""
        grown = round(growth(account, placement, workload, after), 9)
        falls = 0.5 - grown / (2.0 * (1.0 + abs(grown)))
        return (falls, *_fullness(account, demand, placement))

    return Policy("fragmentation", key, rate)


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("binpack", _least_free, _fullness),
            Policy("spread", _most_free, _emptiness),
            fragmentation_policy(TYPICAL),
        )
    }
)
