"""What would happen if these pods came now: placed one after the other on a copy of the books.

The same code decides as for real pods. kube-scheduler has reasons of its own (CPU, taints, spread),
so the node it takes may be another of those that fit; that a pod fits nowhere is certain.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gpucore.account import NodeAccount
from gpucore.fit import fit
from gpucore.grouping import BY_LINKS, Grouping
from gpucore.model import Claim, ClaimState, Demand, Placement, Refusal
from gpucore.policy import Policy, place, rate, resolve
from gpucore.units import NodeName, PodUid


class Wish(msgspec.Struct, frozen=True):
    """A pod that might come; ``name`` is unique in one question."""

    name: str
    demand: Demand


class Outcome(msgspec.Struct, frozen=True):
    """What becomes of one wish.

    Attributes:
        placement: where it would sit; ``None`` where it fits nowhere.
        refusals: why not, by node; empty where it is placed.
    """

    name: str
    placement: Placement | None = None
    refusals: Mapping[NodeName, Refusal] = {}


class WhatIf(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        outcomes: one for each wish, in order.
        accounts: the books of every node as they would stand then.
    """

    outcomes: tuple[Outcome, ...]
    accounts: Mapping[NodeName, NodeAccount]


def what_if(
    accounts: Mapping[NodeName, NodeAccount],
    wishes: Iterable[Wish],
    policy: str | Policy = "",
    *,
    grouping: Grouping = BY_LINKS,
) -> WhatIf:
    """Place ``wishes`` in order, each on the best node of those that fit.

    Args:
        accounts: the books as they are, which stay so.
        wishes: what might come.
        policy, grouping: as in :func:`gpucore.policy.place`.
    """
    books = dict(accounts)
    outcomes = tuple(_granted(books, wish, policy, grouping) for wish in wishes)
    return WhatIf(outcomes, books)


def _granted(
    books: dict[NodeName, NodeAccount], wish: Wish, policy: str | Policy, grouping: Grouping
) -> Outcome:
    refusals = {name: fit(account, wish.demand) for name, account in books.items()}
    fitting = [name for name, refusal in refusals.items() if refusal is None]
    if not fitting:
        return Outcome(wish.name, refusals={n: r for n, r in refusals.items() if r is not None})
    best = max(fitting, key=lambda name: _rating(books[name], wish.demand, policy, grouping))
    placement = place(books[best], wish.demand, policy, grouping=grouping)
    if isinstance(placement, Refusal):
        return Outcome(wish.name, refusals={best: placement})
    books[best] = books[best].copy()
    books[best].put(claim_for(wish, placement))
    return Outcome(wish.name, placement)


def _rating(
    account: NodeAccount, demand: Demand, policy: str | Policy, grouping: Grouping
) -> tuple[float, ...]:
    placement = place(account, demand, policy, grouping=grouping)
    if isinstance(placement, Refusal):
        return ()
    chosen = resolve(account, demand, policy)
    return rate(account, demand, placement, chosen, grouping=grouping)


def claim_for(wish: Wish, placement: Placement) -> Claim:
    """The claim that a placed wish would be."""
    return Claim(
        uid=PodUid(f"wish/{wish.name}"),
        namespace="",
        name=wish.name,
        state=ClaimState.ASSUMED,
        placement=placement,
        exclusive=wish.demand.whole_device,
    )
