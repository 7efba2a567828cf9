"""The fewest pods whose move makes room: whole cards of one node, or a block of units on one card.

Candidates are tried from the fewest pods up; the first whose pods all find another place is the
answer. The room is reserved first and the pods are then placed by the core like new ones, largest
first, so a plan that is given can be carried out; a plan needing another order may be missed. Rules
of the scheduler besides GPUs are not looked at, and nothing is moved here.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, islice
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.model import Cards, Claim, ClaimState, Demand, Placement
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.whatif import Trial, Wish

TRIES: Final = 200
"""Candidates that are tried before giving up; the first to ask for a demand asks every node."""

SPARE: Final = 4
"""Cards of a node that are considered beyond the wanted number, those with the fewest pods."""


class Move(msgspec.Struct, frozen=True):
    """One pod that would leave its card for another."""

    claim: Claim
    to: Placement


class Plan(msgspec.Struct, frozen=True):
    """What to move, and what that frees; no moves where there is room already.

    Attributes:
        cards: of ``node``, free as a whole or with the wanted block.
    """

    node: NodeName
    cards: tuple[GpuIndex, ...]
    moves: tuple[Move, ...] = ()


class Goal(msgspec.Struct, frozen=True):
    """Room that is wanted: so many whole cards of one node, or else units on one card."""

    cards: int = 0
    units: int = 0


class _Candidate(msgspec.Struct, frozen=True, order=True):
    """Pods that could leave; ordered by how many they are, then by how much they hold."""

    pods: int
    units: int
    node: NodeName
    cards: tuple[GpuIndex, ...]
    uids: tuple[PodUid, ...]
    first: bool = True


def defragment(
    accounts: Mapping[NodeName, NodeAccount], demands: Mapping[PodUid, Demand], goal: Goal
) -> Plan | None:
    """The plan with the fewest moves, or ``None`` where none was found.

    Args:
        accounts: books of the nodes that take new pods, which stay as they are.
        demands: what each pod that may be moved asks; others stay where they are.
        goal: the room that is wanted.
    """
    queue = [c for account in accounts.values() for c in _candidates(account, goal)]
    heapify(queue)
    trial = Trial(accounts)
    for _ in range(TRIES):
        if not queue:
            return None
        candidate = heappop(queue)
        moves = _moves(trial, demands, candidate, goal)
        if moves is not None:
            return Plan(candidate.node, candidate.cards, moves)
        for other in _alternatives(accounts[candidate.node], candidate, goal):
            heappush(queue, other)
    return None


def _candidates(account: NodeAccount, goal: Goal) -> Iterator[_Candidate]:
    cards = [card for card in account.cards.values() if card.gpu is not None and card.healthy]
    if goal.cards:
        cards.sort(key=lambda card: (len(card.holders), card.used, card.index))
        for chosen in combinations(sorted(cards[: goal.cards + SPARE], key=_index), goal.cards):
            yield _of(account, chosen, [uid for card in chosen for uid in card.holders])
        return
    for card in cards:
        if goal.units <= card.total:
            yield from _block(account, card, goal.units)


def _index(card: CardAccount) -> GpuIndex:
    return card.index


def _block(account: NodeAccount, card: CardAccount, units: int) -> Iterator[_Candidate]:
    """The largest holders until enough is free: the fewest there can be."""
    missing, leaving = units - (card.total - card.used), []
    for uid, hold in sorted(card.holders.items(), key=lambda pair: (-pair[1].mem, pair[0])):
        if missing <= 0 and not card.taken:
            break
        leaving.append(uid)
        missing -= hold.mem
    if missing <= 0:
        yield _of(account, [card], leaving)


def _alternatives(account: NodeAccount, failed: _Candidate, goal: Goal) -> Iterator[_Candidate]:
    """After the largest holders of a card found no place: as many others, or one more."""
    if goal.cards or not failed.first:
        return
    card = account.cards[failed.cards[0]]
    missing = goal.units - (card.total - card.used)
    sizes = (failed.pods, failed.pods + 1)
    chosen = (each for size in sizes for each in combinations(sorted(card.holders), size))
    for uids in islice(chosen, TRIES):
        if sum(card.holders[uid].mem for uid in uids) >= missing:
            yield msgspec.structs.replace(_of(account, [card], list(uids)), first=False)


def _of(account: NodeAccount, cards: Sequence[CardAccount], uids: list[PodUid]) -> _Candidate:
    unique = tuple(dict.fromkeys(uids))
    held = sum(card.holders[uid].mem for card in cards for uid in unique if uid in card.holders)
    return _Candidate(len(unique), held, account.name, tuple(card.index for card in cards), unique)


def _moves(
    trial: Trial,
    demands: Mapping[PodUid, Demand],
    candidate: _Candidate,
    goal: Goal,
) -> tuple[Move, ...] | None:
    """Where each pod would go once the room is reserved; ``None`` where one has no place."""
    if not all(uid in demands for uid in candidate.uids):
        return None
    account, books = trial.accounts[candidate.node].copy(), trial.branch()
    leaving = [account.claims[uid] for uid in candidate.uids]
    for uid in candidate.uids:
        account.drop(uid)
    account.put(_reservation(candidate, goal))
    leaving.sort(key=lambda claim: (-demands[claim.uid].mem, claim.namespace, claim.name))
    books.change(account)
    outcomes = [books.grant(Wish(claim.uid, demands[claim.uid])) for claim in leaving]
    moves = [
        Move(claim, outcome.placement)
        for claim, outcome in zip(leaving, outcomes, strict=True)
        if outcome.placement is not None
    ]
    return tuple(moves) if len(moves) == len(leaving) else None


def _reservation(candidate: _Candidate, goal: Goal) -> Claim:
    block: Cards = dict.fromkeys(candidate.cards, goal.units) if goal.units else {}
    whole = candidate.cards if goal.cards else ()
    place = Placement(candidate.node, mem=block, group=whole)
    return Claim(PodUid("room"), "", "room", ClaimState.ASSUMED, place)
