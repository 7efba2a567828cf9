"""Does a demand fit a node, and if not why; and which of thousands of nodes it fits.

:func:`sift` answers from the accounts' aggregates, one dictionary look-up a node for a plain share,
and says the same as :func:`fit`, which the tests hold it to. Nothing is reserved by asking.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpucore.account import NodeAccount
from gpucore.cardfit import CURABLE, per_card, refusal_of_card, refusal_of_whole
from gpucore.ledger import Ledger
from gpucore.model import CardRefusal, Code, Demand, Refusal, Rung
from gpucore.units import NodeName

_TELLING: Final = (
    Code.INSUFFICIENT_MEMORY,
    Code.INSUFFICIENT_CORE,
    Code.MAX_PODS,
    Code.SHARED_CARD,
    Code.TAKEN_WHOLE,
    Code.UNHEALTHY,
    Code.RUNG_MISSING,
    Code.COMPUTE_TOO_LARGE,
    Code.TOO_LARGE,
)
"""Card codes by how near the card came to taking the demand; the first present names the node's."""


def fit(account: NodeAccount, demand: Demand) -> Refusal | None:
    """Why the node cannot take ``demand``; ``None`` when it can."""
    return _unfit_node(account, demand) or (
        _unfit_cards(account, demand) if demand.gpus else _unfit_shares(account, demand)
    )


def _unfit_node(account: NodeAccount, demand: Demand) -> Refusal | None:
    if demand.fault:
        return _final(account, Code.INVALID_REQUEST, detail=demand.fault)
    if not account.present:
        return _final(account, Code.NODE_UNKNOWN)
    offered = account.shape.offers_cards if demand.gpus else account.shape.offers_shares
    if not offered:
        return _final(account, Code.NOT_SHARED)
    inventory = account.inventory
    if inventory is None or not (inventory.gpus and inventory.serving):
        empty = inventory is None or not inventory.gpus
        return _final(account, Code.NO_INVENTORY if empty else Code.PLUGIN_AWAY)
    if demand.mem % demand.cards or demand.core % demand.cards:
        return _final(account, Code.UNEVEN_SPLIT, asked=demand.mem, total=demand.cards)
    return None


def _final(
    account: NodeAccount, code: Code, *, asked: int = 0, total: int = 0, detail: str = ""
) -> Refusal:
    return Refusal(
        account.name,
        code,
        unit=account.unit,
        asked=asked,
        total=total,
        detail=detail,
        unresolvable=True,
    )


def _unfit_shares(account: NodeAccount, demand: Demand) -> Refusal | None:
    refusals = [r for c in account.cards.values() if (r := refusal_of_card(c, demand))]
    if len(account.cards) - len(refusals) < demand.cards:
        return _refused(account, demand, refusals, per_card(demand)[0])
    free = account.free_units() - account.reserved_units()
    if demand.mem > free or _core_is_pending(account, demand):
        return Refusal(
            account.name,
            Code.PENDING_UNITS,
            unit=account.unit,
            asked=demand.mem,
            free=max(free, 0),
            total=account.reserved_units(),
        )
    return None


def _core_is_pending(account: NodeAccount, demand: Demand) -> bool:
    """Compute held on no known card leaves too little of the node's for this demand."""
    if not (demand.core and account.pending_core):
        return False
    free = sum(card.core_free for card in account.cards.values() if card.healthy)
    return demand.core > free - account.pending_core


def _refused(
    account: NodeAccount, demand: Demand, refusals: Sequence[CardRefusal], asked: int
) -> Refusal:
    codes = {refusal.code for refusal in refusals}
    code = next((code for code in _TELLING if code in codes), Code.INSUFFICIENT_GPUS)
    curable = sum(refusal.code in CURABLE for refusal in refusals)
    fitting = len(account.cards) - len(refusals)
    return Refusal(
        account.name,
        code,
        cards=tuple(refusals),
        unit=account.unit,
        asked=asked,
        free=fitting,
        total=demand.cards,
        unresolvable=fitting + curable < demand.cards,
    )


def _unfit_cards(account: NodeAccount, demand: Demand) -> Refusal | None:
    if account.whole_room >= demand.gpus:
        return None
    refusals = [r for c in account.cards.values() if (r := refusal_of_whole(c))]
    healthy = sum(card.healthy for card in account.cards.values())
    return Refusal(
        account.name,
        Code.INSUFFICIENT_GPUS,
        cards=tuple(refusals),
        unit=account.unit,
        asked=demand.gpus,
        free=account.whole_room,
        total=len(account.shape.inventory.gpus) if account.shape.inventory else 0,
        unresolvable=healthy < demand.gpus,
    )


class Refused(Mapping[NodeName, Refusal]):
    """Refusals by node, each worked out when it is read: read them before the next event.

    A filter over thousands of nodes says no to most of them and often needs details of few.
    """

    def __init__(
        self,
        ledger: Ledger,
        demand: Demand,
        names: Sequence[NodeName],
        fits: Sequence[NodeName],
    ) -> None:
        self._ledger = ledger
        self._demand = demand
        self._names = names
        self._fits = fits
        self._refused: dict[NodeName, None] | None = None

    def __getitem__(self, name: NodeName) -> Refusal:
        if name not in self._unfit():
            raise KeyError(name)
        account = self._ledger.node(name)
        refusal = fit(account, self._demand) if account else None
        return refusal or Refusal(name, Code.NODE_UNKNOWN, unresolvable=True)

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._unfit())

    def __len__(self) -> int:
        return len(self._unfit())

    def _unfit(self) -> dict[NodeName, None]:
        if self._refused is None:
            fits = set(self._fits)
            self._refused = {name: None for name in self._names if name not in fits}
        return self._refused


def sift(
    ledger: Ledger, demand: Demand, names: Sequence[NodeName]
) -> tuple[list[NodeName], Refused]:
    """Split ``names`` into nodes that can take ``demand``, in their order, and refusals."""
    fits = _roomy(ledger, demand, names)
    if not is_plain(demand):
        fits = [name for name in fits if _takes(ledger, name, demand)]
    return fits, Refused(ledger, demand, names, fits)


def _roomy(ledger: Ledger, demand: Demand, names: Iterable[NodeName]) -> list[NodeName]:
    """Names whose aggregate leaves room for one card's part: exact for a plain demand."""
    if demand.gpus:
        room, need = ledger.whole_rooms.get, demand.gpus
    else:
        room, need = ledger.share_rooms.get, -(-demand.mem // demand.cards)
    return [name for name in names if room(name, -1) >= need]


def is_plain(demand: Demand) -> bool:
    """Whether it asks nothing that the aggregate of a node does not answer."""
    return not (
        demand.fault
        or demand.core
        or demand.whole_device
        or demand.cards > 1
        or demand.rung is not Rung.NONE
    )


def _takes(ledger: Ledger, name: NodeName, demand: Demand) -> bool:
    account = ledger.node(name)
    return account is not None and fit(account, demand) is None
