"""Why a placed pod sits on its cards: the choice, taken again as if it came now.

The ledger says what is, not what was when the pod came; a choice that would differ today is said
to, and is no fault. Which policies the extender is configured with is the caller's to say.
"""

from typing import Final

from gpucore.account import NodeAccount
from gpucore.explain import cards_named, placement_sentence, sentence, unit_of
from gpucore.grouping import BY_LINKS, Grouping
from gpucore.model import Claim, Demand, Placement, Refusal
from gpucore.policy import place, resolve
from gpucore.units import GpuIndex

_RULES: Final = {
    "binpack": "the fullest card that takes it, the lowest index among equals",
    "spread": "the emptiest card that takes it, the lowest index among equals",
    "fragmentation": "the card on which the least usable room is lost",
}


def why(
    claim: Claim,
    demand: Demand,
    account: NodeAccount,
    policy: str = "",
    *,
    grouping: Grouping = BY_LINKS,
) -> str:
    """A sentence about the pod's cards on its node; the account stays as it is.

    Args:
        claim, demand: what the pod holds, and what it requests.
        account: the node it is on.
        policy, grouping: of the cluster, as in :func:`gpucore.policy.place`.
    """
    without = account.copy()
    without.drop(claim.uid)
    again = place(without, demand, policy, grouping=grouping)
    if isinstance(again, Refusal):
        return f"it would not be placed here again: {sentence(again)}"
    if demand.gpus:
        return _whole(claim.placement.group, again.group, demand, without, grouping)
    name = resolve(without, demand, policy).name
    rule = _RULES[name]
    if _cards(again) == _cards(claim.placement):
        return f"{name} would choose the same again: {rule}"
    other = placement_sentence(again, unit_of(account))
    return f"{name} would choose {other} now ({rule}); the cards were used otherwise when it came"


def _whole(
    mine: tuple[GpuIndex, ...],
    again: tuple[GpuIndex, ...],
    demand: Demand,
    without: NodeAccount,
    grouping: Grouping,
) -> str:
    matrix = without.shape.matrix
    name = demand.topology or f"{grouping.policy} (the default)"
    free = sum(card.open and card.empty for card in without.cards.values())
    choice = f"of the {free} cards that are free without it"
    if set(mine) == set(again):
        score = f"; they score {matrix.sum_of(mine)}" if matrix.links and mine[1:] else ""
        return f"{name} would choose the same {choice}{score}"
    if not matrix.links:
        return f"{name} would choose {cards_named(again)} now, {choice}; no links are known"
    scores = f"they score {matrix.sum_of(again)}, its own {matrix.sum_of(mine)}"
    return f"{name} would choose {cards_named(again)} now, {choice}: {scores}"


def _cards(placement: Placement) -> frozenset[int]:
    return frozenset((*placement.mem, *placement.core))
