"""What would happen if these pods came now: placed one after the other on a copy of the books.

The same code decides as for real pods. kube-scheduler has reasons of its own (CPU, taints, spread),
so the node it takes may be another of those that fit; that a pod fits nowhere is certain.

What each node says to a demand is kept until its books change, so a hundred equal pods cost one
look at every node and a hundred at the node that took the last one.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gpucore.account import NodeAccount
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


class Rated(msgspec.Struct, frozen=True):
    """Where a node would put a demand, and how good that is; more is better."""

    placement: Placement
    rating: tuple[float, ...]


Verdicts = dict[NodeName, Rated | Refusal]
"""What every node says to one demand, in the order of the books."""


class Trial:
    """Books that can be tried on: pods are put into copies, and what was learnt is kept.

    Args:
        accounts: the books as they are, which stay so.
        policy, grouping: as in :func:`gpucore.policy.place`.
    """

    def __init__(
        self,
        accounts: Mapping[NodeName, NodeAccount],
        policy: str | Policy = "",
        *,
        grouping: Grouping = BY_LINKS,
    ) -> None:
        self._books = dict(accounts)
        self._policy = policy
        self._grouping = grouping
        self._parent: Trial | None = None
        self._known: dict[Demand, Verdicts] = {}
        self._stale: dict[Demand, set[NodeName]] = {}
        self._changed: set[NodeName] = set()

    @property
    def accounts(self) -> Mapping[NodeName, NodeAccount]:
        """The books as they stand now."""
        return self._books

    def branch(self) -> "Trial":
        """A trial that begins here; this one must not change while the other is used."""
        other = Trial(self._books, self._policy, grouping=self._grouping)
        other._parent = self
        return other

    def change(self, account: NodeAccount) -> None:
        """Put other books of a node, known already, in the place of those it has."""
        self._books[account.name] = account
        self._changed.add(account.name)
        for names in self._stale.values():
            names.add(account.name)

    def grant(self, wish: Wish) -> Outcome:
        """Place one wish on the best node of those that fit, the first of equals."""
        verdicts = self.verdicts(wish.demand)
        best: Rated | None = None
        for verdict in verdicts.values():
            if isinstance(verdict, Refusal):
                continue
            if best is None or verdict.rating > best.rating:
                best = verdict
        if best is None:
            refused = {n: v for n, v in verdicts.items() if isinstance(v, Refusal)}
            return Outcome(wish.name, refusals=refused)
        account = self._books[best.placement.node].copy()
        account.put(claim_for(wish, best.placement))
        self.change(account)
        return Outcome(wish.name, best.placement)

    def verdicts(self, demand: Demand) -> Verdicts:
        """What every node says now; only nodes whose books changed are asked again."""
        if demand not in self._known:
            self._known[demand], self._stale[demand] = self._learnt(demand)
        verdicts, stale = self._known[demand], self._stale[demand]
        for name in stale:
            verdicts[name] = self._verdict(self._books[name], demand)
        stale.clear()
        return verdicts

    def _learnt(self, demand: Demand) -> tuple[Verdicts, set[NodeName]]:
        if self._parent is not None:
            return dict(self._parent.verdicts(demand)), set(self._changed)
        found = {name: self._verdict(account, demand) for name, account in self._books.items()}
        return found, set()

    def _verdict(self, account: NodeAccount, demand: Demand) -> Rated | Refusal:
        placement = place(account, demand, self._policy, grouping=self._grouping)
        if isinstance(placement, Refusal):
            return placement
        chosen = resolve(account, demand, self._policy)
        return Rated(placement, rate(account, demand, placement, chosen, grouping=self._grouping))


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
    trial = Trial(accounts, policy, grouping=grouping)
    outcomes = tuple(trial.grant(wish) for wish in wishes)
    return WhatIf(outcomes, trial.accounts)


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
