"""Figures of the ledger in the Prometheus text format.

A cluster of 5,000 nodes with 8 cards has 80,000 of these series; writing them all anew would hold
up a filter for most of a second. So the lines of a node are kept until its books change, and those
that are missing are written a few nodes at a time. Labels are nodes and cards, never pods.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from gpucore.account import NodeAccount
from gpucore.ledger import Ledger
from gpucore.model import Demand
from gpucore.units import NodeName

BREATHE_EVERY: Final = 100

_CARD: Final = "gpushare_extender_card_units"
_HEAD: Final = f"""\
# HELP {_CARD} Units of memory of a card, in the unit of its node.
# TYPE {_CARD} gauge
"""
_PENDING: Final = "gpushare_extender_pending_units"
_OVERFULL: Final = "gpushare_extender_overfull_cards"
_CLAIMS: Final = "gpushare_extender_claims"
_WAITING_PODS: Final = "gpushare_extender_waiting_pods"
_WAITING_UNITS: Final = "gpushare_extender_waiting_units"


class LedgerGauges:
    """Cards, claims, trouble, and what waits.

    Args:
        waiting: the demands of pods that are not bound.
    """

    def __init__(self, ledger: Ledger, waiting: Callable[[], Iterable[Demand]]) -> None:
        self._ledger, self._waiting = ledger, waiting
        self._lines: dict[NodeName, str] = {}

    def touch(self, node: NodeName) -> None:
        """The books of ``node`` changed."""
        self._lines.pop(node, None)

    async def render(self) -> str:
        """All gauges as text."""
        accounts = list(self._ledger.nodes().values())
        fresh = 0
        for account in accounts:
            if account.name not in self._lines:
                self._lines[account.name] = _cards(account)
                fresh += 1
                if fresh % BREATHE_EVERY == 0:
                    await asyncio.sleep(0)
        cards = "".join(self._lines.get(account.name, "") for account in accounts)
        return _HEAD + cards + self._totals(accounts)

    def _totals(self, accounts: list[NodeAccount]) -> str:
        pending = sum(account.pending for account in accounts)
        overfull = sum(len(account.overfull) for account in accounts)
        asked = [demand.mem for demand in self._waiting()]
        states = Counter(claim.state.value for claim in self._ledger.claims().values())
        return (
            _single(_PENDING, "Units held by pods on no known card.", pending)
            + _single(_OVERFULL, "Cards of which more is held than they have.", overfull)
            + _single(_WAITING_PODS, "Pods that ask for something and are not bound.", len(asked))
            + _single(_WAITING_UNITS, "Units of memory that those pods ask for.", sum(asked))
            + f"# HELP {_CLAIMS} Pods that hold something, by state.\n# TYPE {_CLAIMS} gauge\n"
            + "".join(f'{_CLAIMS}{{state="{s}"}} {n}\n' for s, n in sorted(states.items()))
        )


def _cards(account: NodeAccount) -> str:
    return "".join(
        f'{_CARD}{{node="{account.name}",card="{index}",kind="{kind}"}} {figure}\n'
        for index, card in account.cards.items()
        for kind, figure in (("total", card.total), ("used", card.used))
    )


def _single(name: str, words: str, figure: int) -> str:
    return f"# HELP {name} {words}\n# TYPE {name} gauge\n{name} {figure}\n"
