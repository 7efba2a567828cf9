"""prioritize: how good each node is for a pod, 0..10, so that shares pack nodes and not only cards.

A node that is unknown, or turns out not to fit, scores 0 and never voids the list. An entry is sent
as a head, which says the node and is kept by its number, and a tail, which says its score and is
one of a few: heads lie in a row in memory and tails are always at hand, which is most of what an
answer about thousands of nodes costs. Tails of plain shares are kept in a row for all amounts, by
policy, all others by demand.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Final

from gpucore.grouping import Grouping
from gpucore.model import Ask, Demand
from gpucore.policy import MAX_SCORE, score
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages, ratings
from gpuextender.answers import Answers
from gpuextender.gangs import Gangs
from gpuextender.listings import Listing, Listings
from gpuextender.messages import ExtenderArgs, HostPriority, MessageError
from gpuextender.roster import NOBODY, Roster
from gpuextender.state import State

POLICIES: Final = 8
TAILS: Final = tuple(b"%d}," % rating for rating in range(MAX_SCORE + 1))
"""What is sent of a node after its head, by rating."""
_ANY_SHARE: Final = Demand((Ask(1),), mem=1)
_NO_ROW: Final = TAILS[:1]
_EMPTY: Final = b"[]"


class Prioritize:
    """The verb.

    Args:
        policy: where neither pod nor node says.
        grouping: how cards that go together are chosen.
    """

    def __init__(
        self,
        state: State,
        gangs: Gangs,
        roster: Roster,
        listings: Listings,
        *,
        policy: str,
        grouping: Grouping,
    ) -> None:
        self._state = state
        self._gangs = gangs
        self._roster = roster
        self._listings = listings
        self._grouping = grouping
        self._policy = policy
        self._tails: Answers[Hashable, bytes] = Answers(roster)
        self._rows: Answers[str, Sequence[bytes]] = Answers(roster, POLICIES)
        self._heads = [b""]

    def touch(self, number: int) -> None:
        """The books of a node changed, or another node has its number now."""
        self._tails.touch(number)
        self._rows.touch(number)
        self._heads.extend([b""] * (len(self._roster) - len(self._heads)))
        head = _head(self._roster.names[number])
        if number != NOBODY and self._heads[number] != head:  # else what lies in its row stays
            self._heads[number] = head

    async def answer(self, body: bytes) -> bytes:
        """The encoded ``HostPriorityList``; empty where the request cannot be read."""
        try:
            args = messages.decode(body, ExtenderArgs)
            listing = self._listing(args)
            asking = self._state.saw(decode_pod(args.pod)) if messages.given(args.pod) else None
        except (MessageError, WireError):
            return _EMPTY
        marks = self._gangs.marks(asking, listing.names) if asking else None
        if asking is None or asking.demand is None or marks is not None:
            known = marks or {}
            return self._joined(listing, [TAILS[known.get(name, 0)] for name in listing.names])
        return self._joined(listing, await self._rated(listing.numbers, asking.demand))

    async def warm(self) -> None:
        """Work out beforehand, a few nodes at a time, what is asked of pods without a policy."""
        self._heads = [b"", *map(_head, self._roster.names[1:])]
        numbers = self._roster.numbers(list(self._state.ledger.nodes()))
        await self._known(list(filter(None, numbers)), _ANY_SHARE)

    def _listing(self, args: ExtenderArgs) -> Listing:
        if messages.given(args.node_names):
            return self._listings.read(args.node_names)
        return self._listings.of(
            list(messages.items_of(args.nodes)) if messages.given(args.nodes) else []
        )

    async def _rated(self, numbers: Sequence[int], demand: Demand) -> Sequence[bytes]:
        if all(numbers):
            return await self._known(numbers, demand)
        known = iter(await self._known(list(filter(None, numbers)), demand))
        return [next(known) if number else TAILS[0] for number in numbers]

    async def _known(self, numbers: Sequence[int], demand: Demand) -> Sequence[bytes]:
        if not ratings.plain(demand):
            return await self._tails.ask(demand, numbers, lambda ns: self._exact(ns, demand))
        rows = await self._rows.ask(
            demand.policy, numbers, lambda ns: [self._row(number, demand.policy) for number in ns]
        )
        try:
            return [row[demand.mem] for row in rows]
        except IndexError:
            return await self._beyond(numbers, rows, demand)

    async def _beyond(
        self, numbers: Sequence[int], rows: Sequence[Sequence[bytes]], demand: Demand
    ) -> Sequence[bytes]:
        """Tails where some rows do not go so far: the core is asked about those nodes."""
        pairs = list(zip(numbers, rows, strict=True))
        short = [number for number, row in pairs if demand.mem >= len(row)]
        exact = iter(await self._tails.ask(demand, short, lambda ns: self._exact(ns, demand)))
        return [row[demand.mem] if demand.mem < len(row) else next(exact) for _, row in pairs]

    def _exact(self, numbers: Sequence[int], demand: Demand) -> list[bytes]:
        """Tails by what the core says."""
        return [TAILS[self._score(number, demand)] for number in numbers]

    def _row(self, number: int, policy: str) -> Sequence[bytes]:
        """Tails of a node by amount; of no amount but 0 where the short cut does not hold."""
        account = self._state.ledger.node(self._roster.names[number])
        if account is None:
            return _NO_ROW
        scores = ratings.table(account, policy or account.shape.policy or self._policy)
        return _tails_of(scores) or _NO_ROW

    def _score(self, number: int, demand: Demand) -> int:
        account = self._state.ledger.node(self._roster.names[number])
        if account is None:
            return 0
        return score(account, demand, self._policy, grouping=self._grouping)

    def _joined(self, listing: Listing, tails: Sequence[bytes]) -> bytes:
        """The answer about ``listing``, tail by tail."""
        numbers = listing.numbers
        heads = list(map(self._heads.__getitem__, numbers))
        if not all(heads):  # some are unknown
            heads = [head or _head(name) for head, name in zip(heads, listing.names, strict=True)]
        parts = [b""] * (2 * len(heads))
        parts[::2], parts[1::2] = heads, tails
        return b"[%b]" % b"".join(parts)[:-1]


@lru_cache(ratings.STATES)
def _tails_of(scores: tuple[int, ...]) -> Sequence[bytes]:
    return tuple(TAILS[one] for one in scores)


def _head(name: str) -> bytes:
    """What is sent of a node up to its rating."""
    return messages.encode(HostPriority(name, 0)).removesuffix(b"0}")
