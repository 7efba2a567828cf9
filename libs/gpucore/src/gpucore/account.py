"""One node's books: its cards, the claims on them, and the aggregates a filter reads.

An account outlives its node while pods still claim it, and stands ready when the node returns. It
changes only through :class:`gpucore.ledger.Ledger` (or on a copy, in :mod:`gpucore.whatif`).
Aggregates are reckoned up when they are read, so that many changes in a row cost one reckoning.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gpucore.cards import CardAccount, Hold
from gpucore.model import Claim, Inventory
from gpucore.shape import ABSENT, NodeShape
from gpucore.units import GpuIndex, MemoryUnit, NodeName, PodUid


class NodeAccount:
    """The books of one node.

    Attributes:
        name: of the node.
        shape: what the node is, apart from who holds it.
        pending: units held on no known card; ``pending_core`` and ``pending_gpus`` likewise.
    """

    __slots__ = (
        "_cards",
        "_claims",
        "_crowd",
        "_excess",
        "_free",
        "_free_parts",
        "_largest",
        "_reckoned",
        "_share_room",
        "_whole_room",
        "name",
        "pending",
        "pending_core",
        "pending_gpus",
        "shape",
    )

    def __init__(self, name: NodeName, shape: NodeShape = ABSENT) -> None:
        self.name = name
        self.shape = shape
        self._claims: dict[PodUid, Claim] = {}
        self._cards: dict[GpuIndex, CardAccount] = {}
        self._free_parts: Mapping[GpuIndex, int] | None = None
        self.reshape(shape)

    @property
    def present(self) -> bool:
        """The node exists; otherwise only claims on it do."""
        return self.shape.present

    @property
    def inventory(self) -> Inventory | None:
        """Its cards, where anything says what they are."""
        return self.shape.inventory

    @property
    def unit(self) -> MemoryUnit | None:
        """The size of a unit; ``None`` where nobody has said."""
        return self.shape.unit

    @property
    def cards(self) -> Mapping[GpuIndex, CardAccount]:
        """Its cards by index, in order; those that it lost and that are still held come last."""
        return MappingProxyType(self._cards)

    @property
    def claims(self) -> Mapping[PodUid, Claim]:
        """What pods hold here."""
        return MappingProxyType(self._claims)

    @property
    def total_units(self) -> int:
        """Units of all cards."""
        return sum(card.total for card in self._cards.values())

    @property
    def used_units(self) -> int:
        """Units held, those on no known card included."""
        return sum(card.used for card in self._cards.values()) + self.pending

    @property
    def overfull(self) -> tuple[GpuIndex, ...]:
        """Cards of which more is held than they have."""
        return tuple(sorted(i for i, card in self._cards.items() if card.overfull))

    @property
    def share_room(self) -> int:
        """The largest one-card share of memory that fits now; -1 where none is offered."""
        self._reckon()
        return self._share_room

    @property
    def whole_room(self) -> int:
        """How many whole cards fit now; -1 where none are offered."""
        self._reckon()
        return self._whole_room

    def reserved_units(self) -> int:
        """Units to keep free for what is held on no known card, or cannot be where it is said.

        Two equal pods that swapped cards are corrected one after the other: in between, one card
        looks over-full and the other free, and only the excess says that it is not.
        """
        self._reckon()
        return self.pending + self._excess + self.pending_gpus * self._largest

    def free_units(self) -> int:
        """Units left on cards that may be given out, before anything is kept for pending pods."""
        self._reckon()
        return self._free

    def free_parts(self) -> Mapping[GpuIndex, int]:
        """Thousandths left on each healthy card."""
        if self._free_parts is None:
            cards = self._cards.items()
            self._free_parts = {i: card.free_milli for i, card in cards if card.healthy}
        return self._free_parts

    def reshape(self, shape: NodeShape) -> None:
        """Follow a change of the node; what pods hold is counted anew in its unit."""
        claims = list(self._claims.values())
        self.shape = shape
        self._largest = shape.largest_card
        self._claims.clear()
        self._cards = shape.open_cards()
        self.pending = self.pending_core = self.pending_gpus = 0
        for claim in claims:
            self._enter(claim)
        self._changed()

    def put(self, claim: Claim) -> None:
        """Enter a claim, in the place of an earlier one of the same pod."""
        self._strike(claim.uid)
        self._enter(claim)
        self._changed()

    def drop(self, uid: PodUid) -> None:
        """Strike out the claim of ``uid``, if there is one."""
        self._strike(uid)
        self._changed()

    def copy(self) -> "NodeAccount":
        """Equal books that may be changed apart."""
        twin = NodeAccount(self.name, self.shape)
        for claim in self._claims.values():
            twin._enter(claim)
        twin._changed()
        return twin

    def _enter(self, claim: Claim) -> None:
        self._claims[claim.uid] = claim
        for index, hold in self._holds(claim).items():
            card = self._cards.get(index)
            if card is None:
                card = self._cards[index] = CardAccount(index, None)
            card.take(claim.uid, hold)
        self.pending += self.shape.counted(claim.pending, claim.unit)
        self.pending_core += claim.pending_core
        self.pending_gpus += claim.pending_gpus

    def _strike(self, uid: PodUid) -> None:
        claim = self._claims.pop(uid, None)
        if claim is None:
            return
        for index in _indexes(claim):
            card = self._cards[index]
            card.drop(uid)
            if card.gpu is None and card.empty:
                del self._cards[index]
        self.pending -= self.shape.counted(claim.pending, claim.unit)
        self.pending_core -= claim.pending_core
        self.pending_gpus -= claim.pending_gpus

    def _holds(self, claim: Claim) -> dict[GpuIndex, Hold]:
        placement = claim.placement
        return {
            index: Hold(
                mem=self.shape.counted(placement.mem.get(index, 0), claim.unit),
                core=placement.core.get(index, 0),
                whole=index in placement.group,
                alone=claim.exclusive,
            )
            for index in _indexes(claim)
        }

    def _changed(self) -> None:
        self._reckoned = False
        self._free_parts = None

    def _reckon(self) -> None:
        """Bring the aggregates up to date; exact, so that a filter needs nothing else."""
        if self._reckoned:
            return
        self._reckoned = True
        widest = empties = self._free = self._excess = self._crowd = 0
        for card in self._cards.values():
            left = card.free
            self._excess += card.excess
            self._crowd += card.crowd
            if card.healthy:
                self._free += left
                if card.open:
                    widest = max(widest, left)
                    empties += card.empty
        self._share_room = self._whole_room = -1
        if self.inventory is not None and not self.inventory.serving:
            return
        if self.shape.offers_shares:
            self._share_room = max(min(widest, self._free - self.reserved_units()), 0)
        if self.shape.offers_cards:
            self._whole_room = max(empties - self.reserved_cards(), 0)

    def reserved_cards(self) -> int:
        """Whole cards to keep free, for the same reasons as units."""
        self._reckon()
        strays = -(-self.pending // self._largest) if self._largest else 0
        return self.pending_gpus + self._crowd + strays


def _indexes(claim: Claim) -> frozenset[GpuIndex]:
    placement = claim.placement
    return frozenset((*placement.mem, *placement.core, *placement.group))
