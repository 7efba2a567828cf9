"""What nodes say to a pod: that it fits, or why not in the words that are sent.

On a full cluster thousands of nodes refuse every pod. A verdict is kept until the node's books
change: by demand, and for plain shares in a pattern for all amounts, because only the amount asked
differs in the sentence. Tests hold this to the core's own verdicts and sentences.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.explain import sentence
from gpucore.fit import fit
from gpucore.ledger import Ledger
from gpucore.model import Code, Demand, Refusal
from gpucore.units import NodeName
from gpuextender import ratings
from gpuextender.answers import Answers
from gpuextender.roster import Roster

_MARK: Final = 987_654_321_987
"""An amount that no sentence holds otherwise."""


class Verdict(msgspec.Struct, frozen=True):
    """What a node says, as it is sent; no ``code`` where it can take the pod."""

    text: str
    code: Code | None
    unresolvable: bool = False


FITS: Final = Verdict("", None)
"""The one verdict of every node that can take the pod: compare by identity."""


class _Pattern(msgspec.Struct, frozen=True):
    """A reason with the amount left out; holds for amounts up to ``most``.

    It speaks of too little free memory, which an eviction can cure: never of what is final.
    """

    before: str
    after: str
    most: int


class Refusals:
    """Verdicts of nodes, for one ledger."""

    def __init__(self, ledger: Ledger, roster: Roster) -> None:
        self._ledger = ledger
        self._roster = roster
        self._verdicts: Answers[Demand, Verdict] = Answers(roster)
        self._patterns: dict[int, _Pattern] = {}

    def touch(self, number: int) -> None:
        """The books of a node changed."""
        self._verdicts.touch(number)
        self._patterns.pop(number, None)

    def doubts(self, demand: Demand, numbers: Sequence[int]) -> Sequence[int]:
        """Places in ``numbers`` of nodes whose rooms do not show that they can take ``demand``."""
        if demand.gpus and not demand.fault:
            rooms, least = self._roster.whole_rooms, demand.gpus
        elif ratings.plain(demand):
            rooms, least = self._roster.share_rooms, demand.mem
        else:
            return range(len(numbers))
        if min(map(rooms.__getitem__, numbers), default=least) >= least:
            return ()
        return [place for place, number in enumerate(numbers) if rooms[number] < least]

    async def verdicts(
        self, demand: Demand, names: Sequence[NodeName], numbers: Sequence[int]
    ) -> list[Verdict]:
        """What each of ``names``, whose numbers these are, says to ``demand``."""
        if all(numbers):
            return await self._verdicts.ask(demand, numbers, lambda ns: self._judge(ns, demand))
        known = list(filter(None, numbers))
        found = iter(await self._verdicts.ask(demand, known, lambda ns: self._judge(ns, demand)))
        return [
            next(found) if number else _unknown(name)  # not kept: such names must not fill memory
            for name, number in zip(names, numbers, strict=True)
        ]

    def _judge(self, numbers: Sequence[int], demand: Demand) -> list[Verdict]:
        if ratings.plain(demand):
            return [self._plain(number, demand) for number in numbers]
        return [self._verdict(number, demand) for number in numbers]

    def _plain(self, number: int, demand: Demand) -> Verdict:
        amount = demand.mem
        if self._roster.share_rooms[number] >= amount:
            return FITS
        pattern = self._patterns.get(number)
        if pattern is None or amount > pattern.most:
            return self._verdict(number, demand)
        return Verdict(f"{pattern.before}{amount}{pattern.after}", Code.INSUFFICIENT_MEMORY)

    def _verdict(self, number: int, demand: Demand) -> Verdict:
        name = self._roster.names[number]
        account = self._ledger.node(name)
        if account is None:
            return _unknown(name)
        refusal = fit(account, demand)
        if refusal is None:
            return FITS
        self._learn(number, account, demand, refusal)
        return _verdict_of(refusal)

    def _learn(self, number: int, account: NodeAccount, demand: Demand, refusal: Refusal) -> None:
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
            self._patterns[number] = _Pattern(before, after, most)


def _unknown(name: NodeName) -> Verdict:
    return _verdict_of(Refusal(name, Code.NODE_UNKNOWN, unresolvable=True))


def _verdict_of(refusal: Refusal) -> Verdict:
    return Verdict(sentence(refusal), refusal.code, refusal.unresolvable)
