"""What would happen if these pods came now: placed one after the other on a copy of the books.

The same code decides as for real pods, and kube-scheduler's own rules as far as
:mod:`gpucore.scheduling.nodefit` evaluates them. The scheduler also scores nodes by its own rules,
so the node it takes may be another of those that fit.

What each node says to a pod is kept until its books change, so a hundred equal pods cost one look
at every node and a hundred at the node that took the last one.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.grouping import BY_LINKS, Grouping
from gpucore.model import Claim, ClaimState, Demand, Placement, Refusal
from gpucore.policy import Policy, place, rate, resolve
from gpucore.scheduling.constraints import UNCONSTRAINED, CandidateNode, PodConstraints
from gpucore.scheduling.nodefit import admit
from gpucore.units import NodeName, PodUid

NO_NODES: Final[Mapping[NodeName, CandidateNode]] = MappingProxyType({})


class Wish(msgspec.Struct, frozen=True):
    """A pod that might come; ``name`` is unique in one question.

    Attributes:
        constraints: what it requires besides GPUs; looked at on nodes that the trial has as
            candidates.
    """

    name: str
    demand: Demand
    constraints: PodConstraints = UNCONSTRAINED


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
        nodes: the candidate nodes likewise.
    """

    outcomes: tuple[Outcome, ...]
    accounts: Mapping[NodeName, NodeAccount]
    nodes: Mapping[NodeName, CandidateNode] = NO_NODES


class Rated(msgspec.Struct, frozen=True):
    """Where a node would put a demand, and how good that is; more is better."""

    placement: Placement
    rating: tuple[float, ...]


Verdicts = dict[NodeName, Rated | Refusal]
"""What every node says to one demand, in the order of the books."""

_Kind = tuple[Demand, PodConstraints]


class Trial:
    """Books that can be tried on: pods are put into copies, and what was learnt is kept.

    Args:
        accounts: the books as they are, which stay so.
        policy, grouping: as in :func:`gpucore.policy.place`.
        nodes: what kube-scheduler's own rules look at; a node that is missing has room for all.
    """

    def __init__(
        self,
        accounts: Mapping[NodeName, NodeAccount],
        policy: str | Policy = "",
        *,
        grouping: Grouping = BY_LINKS,
        nodes: Mapping[NodeName, CandidateNode] = NO_NODES,
    ) -> None:
        self._books = dict(accounts)
        self._nodes = dict(nodes)
        self._policy = policy
        self._grouping = grouping
        self._parent: Trial | None = None
        self._known: dict[_Kind, Verdicts] = {}
        self._stale: dict[_Kind, set[NodeName]] = {}
        self._changed: set[NodeName] = set()

    @property
    def accounts(self) -> Mapping[NodeName, NodeAccount]:
        """The books as they stand now."""
        return self._books

    @property
    def nodes(self) -> Mapping[NodeName, CandidateNode]:
        """The candidate nodes with the requests of the pods that were placed."""
        return self._nodes

    def branch(self) -> "Trial":
        """A trial that begins here; this one must not change while the other is used."""
        other = Trial(self._books, self._policy, grouping=self._grouping, nodes=self._nodes)
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
        verdicts = self.verdicts(wish.demand, wish.constraints)
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
        node = self._nodes.get(account.name)
        if node is not None:
            self._nodes[account.name] = node.plus(wish.constraints.requests)
        return Outcome(wish.name, best.placement)

    def verdicts(self, demand: Demand, constraints: PodConstraints = UNCONSTRAINED) -> Verdicts:
        """What every node says now; only nodes whose books changed are asked again."""
        kind = (demand, constraints)
        if kind not in self._known:
            self._known[kind], self._stale[kind] = self._learnt(kind)
        verdicts, stale = self._known[kind], self._stale[kind]
        for name in stale:
            verdicts[name] = self._verdict(self._books[name], kind)
        stale.clear()
        return verdicts

    def _learnt(self, kind: _Kind) -> tuple[Verdicts, set[NodeName]]:
        if self._parent is not None:
            return dict(self._parent.verdicts(*kind)), set(self._changed)
        found = {name: self._verdict(account, kind) for name, account in self._books.items()}
        return found, set()

    def _verdict(self, account: NodeAccount, kind: _Kind) -> Rated | Refusal:
        demand, constraints = kind
        node = self._nodes.get(account.name)
        refusal = admit(account, demand, node, constraints) if node is not None else None
        if refusal is not None:
            return refusal
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
    nodes: Mapping[NodeName, CandidateNode] = NO_NODES,
) -> WhatIf:
    """Place ``wishes`` in order, each on the best node of those that fit.

    Args:
        accounts: the books as they are, which stay so.
        wishes: what might come.
        policy, grouping: as in :func:`gpucore.policy.place`.
        nodes: as in :class:`Trial`.
    """
    trial = Trial(accounts, policy, grouping=grouping, nodes=nodes)
    outcomes = tuple(trial.grant(wish) for wish in wishes)
    return WhatIf(outcomes, trial.accounts, trial.nodes)


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
