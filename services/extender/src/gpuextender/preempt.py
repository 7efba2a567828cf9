"""preempt: of the victims that the scheduler has in mind, those whose cards really make room.

The scheduler counts a node's units as one heap: it would evict pods of two cards for a share that
needs one. Here, on a copy of the books, victims are taken away until the demand fits, those of
lowest priority first, and then every one that turns out not to be needed is given back, highest
priority first. A node on which no eviction helps is left out of the answer, and a
pod of a gang evicts nobody: room for one says nothing about the others.

kube-scheduler counts pods that are nominated for the node as one heap too. Victims therefore have
to make room beside the nominated pods of the same or a higher priority.

Victims that hold none of our resources were chosen for reasons that are not ours (processors,
memory, ports) and stay; so do all where the demand fits without any eviction.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.fit import fit
from gpucore.model import Demand
from gpucore.nominated import NominatedPod, refusal_beside
from gpucore.units import NodeName, PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.gangs import gang_of
from gpucore.wire.pods import Pod, decode_pod
from gpuextender import messages
from gpuextender.messages import (
    MessageError,
    MetaPod,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
    Victims,
)
from gpuextender.state import State

_NOBODY: Final = PreemptionResult({})


class Victim(msgspec.Struct, frozen=True):
    """A pod that may be evicted; higher priority is more worth keeping."""

    uid: PodUid
    priority: int = 0


class Preempt:
    """The verb. What cannot be read is answered with no node, so that nobody is evicted."""

    def __init__(self, state: State) -> None:
        self._state = state

    def answer(self, body: bytes) -> PreemptionResult:
        """Victims by node, for nodes where they help."""
        try:
            return self._decide(messages.decode(body, PreemptionArgs))
        except (MessageError, WireError):
            return _NOBODY

    def _decide(self, args: PreemptionArgs) -> PreemptionResult:
        given = args.node_name_to_victims or args.node_name_to_meta_victims or {}
        if not messages.given(args.pod):
            return _NOBODY
        pod = decode_pod(args.pod)
        demand = self._state.saw(pod).demand
        if demand is not None and gang_of(pod) is not None:
            return _NOBODY
        chosen: dict[str, MetaVictims] = {}
        for node, raw in given.items():
            if not messages.given(raw):
                continue
            victims = messages.decode(raw, Victims)
            needed = self._needed(node, pod, demand, self._identify(victims.pods or ()))
            if needed:
                pods = [MetaPod(victim.uid) for victim in needed]
                chosen[node] = MetaVictims(pods, victims.num_pdb_violations)
        return PreemptionResult(chosen)

    def _identify(self, pods: Iterable[msgspec.Raw]) -> list[Victim]:
        """Victims as whole pods, or by UID alone."""
        return [self._victim(raw) for raw in pods]

    def _victim(self, raw: msgspec.Raw) -> Victim:
        uid = PodUid(messages.decode(raw, MetaPod).uid)
        if uid:
            return Victim(uid, self._state.priority(uid))
        pod: Pod = decode_pod(raw)
        return Victim(pod.uid, pod.priority)

    def _needed(
        self, node: str, pod: Pod, demand: Demand | None, victims: Sequence[Victim]
    ) -> Sequence[Victim]:
        account = self._state.ledger.node(NodeName(node))
        if demand is None:
            return victims
        if account is None:
            return ()
        nominated = self._state.nominations.before(account.name, pod)
        return needed(_FitCheck(account, demand, nominated), victims)


class _FitCheck:
    """Whether a demand fits on a node once some victims are gone.

    Args:
        account: state of the node, which stays as it is.
        nominated: pods for which room is kept on the node.
    """

    def __init__(
        self, account: NodeAccount, demand: Demand, nominated: Sequence[NominatedPod] = ()
    ) -> None:
        self.account = account
        self._demand = demand
        self._nominated = nominated

    def fits(self, victims: Iterable[Victim] = ()) -> bool:
        """The demand fits beside the nominated pods without these victims."""
        copy = self.account.copy()
        for victim in victims:
            copy.drop(victim.uid)
        if self._nominated:
            return refusal_beside(copy, self._demand, self._nominated) is None
        return fit(copy, self._demand) is None


def needed(check: _FitCheck, victims: Sequence[Victim]) -> Sequence[Victim]:
    """The victims to evict; empty when even all of them do not make room."""
    account = check.account
    if check.fits():
        return victims
    ours = sorted(
        (victim for victim in victims if victim.uid in account.claims),
        key=lambda victim: victim.priority,
    )
    evicted = _enough(check, ours)
    if evicted is None:
        return ()
    spared = {victim.uid for victim in ours} - {victim.uid for victim in evicted}
    return [victim for victim in victims if victim.uid not in spared]


def _enough(check: _FitCheck, victims: Sequence[Victim]) -> Sequence[Victim] | None:
    """The fewest of ``victims`` (lowest priority first) that make room; ``None`` if none do.

    Each victim alone is tried, then the victims of each card, then all: linear in victims, for the
    scheduler asks about a hundred nodes at once.
    """
    for victim in victims:
        if check.fits((victim,)):
            return (victim,)
    found = [_pruned(check, crowd) for crowd in _crowds(check.account, victims)]
    enough = [crowd for crowd in found if crowd is not None]
    return min(enough, key=_cost) if enough else _pruned(check, victims)


def _crowds(account: NodeAccount, victims: Sequence[Victim]) -> Iterable[Sequence[Victim]]:
    """Victims by card, for a share of one card needs room on one card."""
    for card in account.cards.values():
        yield [victim for victim in victims if victim.uid in card.holders]


def _pruned(check: _FitCheck, victims: Sequence[Victim]) -> Sequence[Victim] | None:
    """``victims`` less everyone who can stay, highest priority spared first."""
    if not check.fits(victims):
        return None
    kept = list(victims)
    for victim in sorted(victims, key=lambda one: -one.priority):
        rest = [one for one in kept if one is not victim]
        if check.fits(rest):
            kept = rest
    return kept


def _cost(victims: Sequence[Victim]) -> tuple[int, int, int]:
    """How many, then the highest priority lost, then the sum of priorities."""
    priorities = [victim.priority for victim in victims]
    return len(victims), max(priorities, default=0), sum(priorities)
