"""Why nodes refuse a pod, in the words that are sent, without working them out again and again.

On a full cluster thousands of nodes refuse every pod. A reason is kept until the node's books
change: by demand, and for plain shares for all amounts at once, because only the amount asked
differs in the sentence. Tests hold this to the core's own sentences.
"""

from collections import Counter
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import sentence
from gpucore.fit import Refused
from gpucore.ledger import Ledger
from gpucore.model import Code, Demand, Refusal
from gpucore.units import NodeName
from gpuextender import ratings
from gpuextender.memo import Memo

_MARK: Final = 987_654_321_987
"""An amount that no sentence holds otherwise."""


class Reason(msgspec.Struct, frozen=True):
    """A refusal as it is sent."""

    text: str
    code: Code
    unresolvable: bool


class _Pattern(msgspec.Struct, frozen=True):
    """A reason with the amount left out; holds for amounts up to ``most``.

    It speaks of too little free memory, which an eviction can cure: never of what is final.
    """

    before: str
    after: str
    most: int


class Said(msgspec.Struct):
    """Reasons by node, as a scheduler reads them.

    Attributes:
        failed: every node.
        hopeless: those of them that no eviction can help.
        counts: how many for each code.
    """

    failed: dict[str, str]
    hopeless: dict[str, str]
    counts: Counter[Code]


class Refusals:
    """Reasons of nodes, for one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reasons: Memo[Demand, Reason] = Memo()
        self._patterns: dict[NodeName, _Pattern] = {}

    def touch(self, node: NodeName) -> None:
        """The books of ``node`` changed."""
        self._reasons.touch(node)
        self._patterns.pop(node, None)

    def of(self, demand: Demand, refused: Refused) -> Said:
        """What every node in ``refused``, which must be current, says to ``demand``."""
        said = Said({}, {}, Counter())
        self._say_again(said, demand, refused)
        said.counts[Code.INSUFFICIENT_MEMORY] = len(said.failed)
        for name in refused:
            if name in said.failed:
                continue
            reason = self._reason(name, demand, refused)
            said.failed[name] = reason.text
            said.counts[reason.code] += 1
            if reason.unresolvable:
                said.hopeless[name] = reason.text
        return said

    def _say_again(self, said: Said, demand: Demand, refused: Refused) -> None:
        """Nodes whose pattern holds: all of them that say nothing new."""
        if not ratings.plain(demand):
            return
        amount, text, patterns = demand.mem, str(demand.mem), self._patterns
        said.failed = {
            name: f"{known.before}{text}{known.after}"
            for name in refused
            if (known := patterns.get(name)) is not None and amount <= known.most
        }

    def _reason(self, name: NodeName, demand: Demand, refused: Refused) -> Reason:
        kept = self._reasons.of(demand)
        known = kept.get(name)
        if known is not None:
            return known
        refusal = refused[name]
        reason = Reason(sentence(refusal), refusal.code, refusal.unresolvable)
        account = self._ledger.node(name)
        if account is not None:  # unknown names must not fill memory
            kept[name] = reason
            self._learn(account, demand, refusal)
        return reason

    def _learn(self, account: NodeAccount, demand: Demand, refusal: Refusal) -> None:
        """Keep a pattern where only the amount can differ.

        No card has the memory, nothing is held on unknown cards, and every card is large enough:
        then each card says the same to every amount up to the smallest card's total.
        """
        if refusal.code is not Code.INSUFFICIENT_MEMORY or not ratings.plain(demand):
            return
        most = min(card.total for card in account.cards.values())
        if account.reserved_units() or demand.mem > most or refusal.unresolvable:
            return
        text = sentence(msgspec.structs.replace(refusal, asked=_MARK))
        before, mark, after = text.partition(str(_MARK))
        if mark and mark not in after:
            self._patterns[account.name] = _Pattern(before, after, most)
