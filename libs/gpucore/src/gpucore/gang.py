"""Gangs: the pods of one training job get places together, on few and well linked nodes, or none.

Nothing is reserved before all pods of the gang exist (:mod:`gpucore.gangmembers`). Then the first
one that asks has places chosen for all that request the same. Those of the others are kept in the
ledger (:data:`gpucore.model.ClaimState.RESERVED`), so that nobody else takes them, until the pods
come, the pods are gone, or the time to live of a reservation is over. A later pod passes only to
nodes where a place is kept for its gang. After a restart the members that the API server shows are
counted and places for the missing ones are chosen anew.

Not promised: that a gang half of which runs is finished when others took the room while nothing was
kept, that pods of one gang with different requests are placed together, and the best of all sets of
nodes: their number is the least, each next one is the best linked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.cardfit import per_card
from gpucore.explain import request_words
from gpucore.fit import fit, sift
from gpucore.gangmembers import MOST_RESERVED, Members, Postponed, incomplete, too_many
from gpucore.gangplaces import Offer, Rules, spread_over
from gpucore.ledger import Ledger
from gpucore.model import Claim, ClaimState, Demand, Placement, Refusal
from gpucore.policy import place
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.gangs import Gang

ROOMIEST: Final = 3
"""Nodes that a shortage names; the others are counted."""


class Seating(msgspec.Struct, frozen=True):
    """Places for every pod of a gang that has none.

    Attributes:
        seats: claims to be reserved from now on, or reserved already.
        given_up: reservations to forget first.
    """

    seats: tuple[Claim, ...]
    given_up: tuple[PodUid, ...] = ()


class Shortage(msgspec.Struct, frozen=True):
    """Why the gang as a whole has no places: a value, not an error.

    Attributes:
        missing: pods that need a place; some may be placed already.
        room: how many could be placed, on how many ``nodes``.
        roomiest: the nodes that can take most, and how many; :data:`ROOMIEST` of them.
    """

    gang: Gang
    demand: Demand
    missing: int
    room: int
    nodes: int
    roomiest: tuple[tuple[NodeName, int], ...] = ()

    @property
    def sentence(self) -> str:
        """The reason with its figures."""
        more = " more" if self.missing < self.gang.size else ""
        room = f"room for {_count(self.room, 'member')} on {_count(self.nodes, 'node')}"
        request = request_words(self.demand)
        return f"gang {self.gang.name} needs {self.missing}{more} x {request}: {room}"


def seat(
    ledger: Ledger,
    gang: Gang,
    demand: Demand,
    names: Collection[NodeName],
    rules: Rules,
    *,
    members: Members,
    now_ns: int,
) -> Seating | Shortage | Postponed:
    """Places for the pods of ``gang`` that hold none: those kept already, else new ones.

    Args:
        demand: of the pod that asks; it has no claim.
        names: nodes that may be used for new places.
        members: the pods of the gang that exist.
        now_ns: when new reservations begin, in Unix nanoseconds; those that are chosen anew keep
            the time of the first.
    """
    claims = ledger.gang(gang.namespace, gang.name)
    seats = [claim for claim in claims if claim.state is ClaimState.RESERVED]
    placed = len(claims) - len(seats)
    if not placed and members.exist < gang.size:
        return incomplete(gang, members.exist)
    missing = max(min(gang.size - placed, members.alike), 1)
    books = _without(ledger, seats)
    kept = tuple(one for one in seats if _stands(books[one.placement.node], one, demand))
    if len(kept) >= missing and any(one.placement.node in names for one in kept):
        return Seating(kept)
    if ledger.reserved(gang.namespace) - len(seats) + missing > MOST_RESERVED:
        return too_many(gang)
    home = {claim.placement.node for claim in claims if claim not in seats}
    accounts = _able(ledger, books, demand, names)
    offers = [Offer(account, demand, rules, most=missing) for account in accounts]
    chosen = spread_over(offers, missing, home)
    if not chosen:
        most = nlargest(ROOMIEST, offers, key=lambda one: one.room)
        roomiest = tuple((one.name, one.room) for one in most)
        room = sum(one.room for one in offers)
        return Shortage(gang, demand, missing, room, len(offers), roomiest)
    placements = [placement for offer, count in chosen for placement in offer.load(count)]
    since = min((one.assume_time for one in seats), default=now_ns)
    fresh = _reserved(gang, placements, demand, ledger, since)
    return Seating(fresh, tuple(one.uid for one in seats))


def taken(ledger: Ledger, kept: Claim, demand: Demand, rules: Rules) -> Placement | Refusal:
    """The placement of a pod that takes a place that is kept in ``ledger``."""
    account = _without(ledger, [kept])[kept.placement.node]

    def choose(_: NodeAccount, free: Sequence[GpuIndex], count: int) -> tuple[GpuIndex, ...]:
        cards = tuple(card for card in _cards(kept.placement) if card in free)
        return cards if len(cards) == count else tuple(free[:count])

    return place(account, demand, rules.policy, choose_group=choose)


def spare(claims: Iterable[Claim], size: int, *, waiting: int) -> list[PodUid]:
    """Reservations of a gang that no pod will use.

    Args:
        claims: all that are of the gang.
        size: pods it has in all.
        waiting: pods of the gang that exist and have no place.
    """
    found = list(claims)
    seats = [claim.uid for claim in found if claim.state is ClaimState.RESERVED]
    members = len(found) - len(seats)
    return seats[max(min(size - members, waiting), 0) :]


def seat_of(claim: Claim) -> Claim:
    """The place of a member whose bind failed, to be kept for it."""
    uid = PodUid(f"gang/{claim.namespace}/{claim.gang}/{claim.uid}")
    return msgspec.structs.replace(
        claim, uid=uid, name=f"gang {claim.gang}", state=ClaimState.RESERVED
    )


def _without(ledger: Ledger, seats: Iterable[Claim]) -> dict[NodeName, NodeAccount]:
    """Copies of the books of the nodes that have seats, as if they had none."""
    books: dict[NodeName, NodeAccount] = {}
    for one in seats:
        account = ledger.node(one.placement.node)
        if account is not None:
            books.setdefault(account.name, account.copy()).drop(one.uid)
    return books


def _stands(account: NodeAccount, kept: Claim, demand: Demand) -> bool:
    """The place still is what a pod with ``demand`` needs and could be given."""
    placement, (mem, _) = kept.placement, per_card(demand)
    cards = [account.cards.get(index) for index in _cards(placement)]
    alike = len(placement.group) == demand.gpus and len(cards) == (demand.gpus or demand.cards)
    return (
        alike
        and all(units == mem for units in placement.mem.values())
        and all(card and card.open and (card.empty or not demand.gpus) for card in cards)
        and fit(account, demand) is None
    )


def _cards(placement: Placement) -> tuple[GpuIndex, ...]:
    return placement.group or tuple(placement.mem or placement.core)


def _able(
    ledger: Ledger,
    books: Mapping[NodeName, NodeAccount],
    demand: Demand,
    names: Collection[NodeName],
) -> Iterator[NodeAccount]:
    """Books of the nodes that can take a pod, those in ``books`` instead of the ledger's."""
    fits, _ = sift(ledger, demand, [name for name in names if name not in books])
    for name in fits:
        account = ledger.node(name)
        if account is not None:
            yield account
    for name, account in books.items():
        if name in names and fit(account, demand) is None:
            yield account


def _reserved(
    gang: Gang, placements: Iterable[Placement], demand: Demand, ledger: Ledger, now_ns: int
) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            uid=PodUid(f"gang/{gang.namespace}/{gang.name}/{number}"),
            namespace=gang.namespace,
            name=f"gang {gang.name}",
            state=ClaimState.RESERVED,
            placement=placement,
            exclusive=demand.whole_device,
            unit=account.unit if (account := ledger.node(placement.node)) else None,
            assume_time=now_ns,
            gang=gang.name,
        )
        for number, placement in enumerate(placements)
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
