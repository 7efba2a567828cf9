"""Why a placed pod sits on its card: the choice, taken again as if it came now.

The books say what is, not what was when the pod came; a choice that would differ today is said to,
and is no fault.
"""

from typing import Final

from gpucore.account import NodeAccount
from gpucore.explain import placement_sentence, sentence
from gpucore.model import Claim, Demand, Placement, Refusal
from gpucore.policy import place, resolve
from gpuinspect.state import unit_of

_RULES: Final = {
    "binpack": "the fullest card that takes it, the lowest index among equals",
    "spread": "the emptiest card that takes it, the lowest index among equals",
    "fragmentation": "the card on which the least usable room is lost",
}


def why(claim: Claim, demand: Demand, account: NodeAccount) -> str:
    """A sentence about the pod's cards on its node; the account stays as it is.

    Empty for whole cards: which of them belong together is a setting of the extender, which nothing
    in the cluster's objects says.
    """
    if demand.gpus:
        return ""
    without = account.copy()
    without.drop(claim.uid)
    again = place(without, demand)
    if isinstance(again, Refusal):
        return f"it would not be placed here again: {sentence(again)}"
    name = resolve(without, demand, "").name
    rule = _RULES[name]
    if _cards(again) == _cards(claim.placement):
        return f"{name} would choose the same again: {rule}"
    other = placement_sentence(again, unit_of(account))
    return f"{name} would choose {other} now ({rule}); the cards were used otherwise when it came"


def _cards(placement: Placement) -> frozenset[int]:
    return frozenset((*placement.mem, *placement.core))
