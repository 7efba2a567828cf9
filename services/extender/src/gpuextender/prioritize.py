"""prioritize: how good each node is for a pod, 0..10, so that shares pack nodes and not only cards.

A node that is unknown, or turns out not to fit, scores 0 and never voids the list. What is sent of
a node is kept encoded, by what is asked: plain shares by policy and amount, all else by demand.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final

from gpucore.grouping import Grouping
from gpucore.model import Demand
from gpucore.policy import MAX_SCORE, score
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages, ratings
from gpuextender.answers import Answers
from gpuextender.gangs import Gangs
from gpuextender.messages import ExtenderArgs, HostPriority, MessageError
from gpuextender.roster import Roster
from gpuextender.slices import Slices
from gpuextender.state import State

POLICIES: Final = 8
_EMPTY: Final = b"[]"


class Prioritize:
    """The verb.

    Args:
        policy: where neither pod nor node says.
        grouping: how cards that go together are chosen.
    """

    def __init__(
        self, state: State, gangs: Gangs, roster: Roster, *, policy: str, grouping: Grouping
    ) -> None:
        self._state = state
        self._gangs = gangs
        self._roster = roster
        self._grouping = grouping
        self._policy = policy
        self._entries: Answers[Hashable, bytes] = Answers(roster)
        self._rows: Answers[str, Sequence[int]] = Answers(roster, POLICIES)
        self._pieces: Answers[int, bytes] = Answers(roster, MAX_SCORE + 1)
        self._hosts: dict[int, NodeName] = {}

    def touch(self, number: int) -> None:
        """The books of a node changed."""
        self._entries.touch(number)
        self._rows.touch(number)
        host = self._roster.names[number]
        if self._hosts.get(number) != host:  # pieces hold for any books, but of one node
            self._hosts[number] = host
            self._pieces.touch(number)

    async def answer(self, body: bytes) -> bytes:
        """The encoded ``HostPriorityList``; empty where the request cannot be read."""
        try:
            args = messages.decode(body, ExtenderArgs)
            names = _names(args)
            asking = self._state.saw(decode_pod(args.pod)) if messages.given(args.pod) else None
        except (MessageError, WireError):
            return _EMPTY
        marks = self._gangs.marks(asking, names) if asking else None
        if asking is None or asking.demand is None or marks is not None:
            known = marks or {}
            return messages.encode([HostPriority(name, known.get(name, 0)) for name in names])
        return b"[" + b",".join(await self._list(names, asking.demand)) + b"]"

    async def warm(self) -> None:
        """Work out beforehand, a few nodes at a time, what is asked of pods without a policy.

        Pieces of one rating are made in a row: read in the order of nodes they are then found
        quickly, which is most of what an answer about thousands of nodes costs.
        """
        numbers = list(filter(None, self._roster.numbers(list(self._state.ledger.nodes()))))
        slices = Slices()
        works: list[Callable[[int], object]] = [lambda number: self._row(number, "")]
        works += [partial(self._piece, rating=rating) for rating in range(MAX_SCORE + 1)]
        for work in works:
            for number in numbers:
                work(number)
                await slices.breathe()

    async def _list(self, names: Sequence[NodeName], demand: Demand) -> list[bytes]:
        numbers = self._roster.numbers(names)
        if all(numbers):
            return await self._known(numbers, demand)
        entries = iter(await self._known(list(filter(None, numbers)), demand))
        return [
            next(entries) if number else _entry(name, 0)
            for name, number in zip(names, numbers, strict=True)
        ]

    async def _known(self, numbers: Sequence[int], demand: Demand) -> list[bytes]:
        if not ratings.plain(demand):
            return await self._entries.ask(demand, numbers, lambda ns: self._exact(ns, demand))
        question = (demand.policy, demand.mem)
        return await self._entries.ask(question, numbers, lambda ns: self._plain(ns, demand))

    def _plain(self, numbers: Sequence[int], demand: Demand) -> list[bytes]:
        """Entries out of rows; of the core where a row cannot say."""
        amount, policy = demand.mem, demand.policy
        rows = self._rows.table(policy)
        pieces = [self._pieces.table(rating) for rating in range(MAX_SCORE + 1)]
        found = _looked_up(numbers, amount, rows, pieces)
        if found is not None:
            return found
        entries = []
        for number in numbers:
            row = rows[number] or self._row(number, policy)
            rating = row[amount] if amount < len(row) else self._score(number, demand)
            entries.append(pieces[rating][number] or self._piece(number, rating))
        return entries

    def _exact(self, numbers: Sequence[int], demand: Demand) -> list[bytes]:
        """Entries by what the core says."""
        return [self._piece(number, self._score(number, demand)) for number in numbers]

    def _row(self, number: int, policy: str) -> Sequence[int]:
        """Scores of a node by amount, kept; none where the short cut does not hold."""
        account = self._state.ledger.node(self._roster.names[number])
        if account is None:
            return ()
        row = ratings.table(account, policy or account.shape.policy or self._policy)
        self._rows.table(policy)[number] = row
        return row

    def _score(self, number: int, demand: Demand) -> int:
        account = self._state.ledger.node(self._roster.names[number])
        if account is None:
            return 0
        return score(account, demand, self._policy, grouping=self._grouping)

    def _piece(self, number: int, rating: int) -> bytes:
        """What is sent of a node with this rating, kept."""
        piece = _entry(self._roster.names[number], rating)
        self._pieces.table(rating)[number] = piece
        return piece


def _looked_up(
    numbers: Sequence[int],
    amount: int,
    rows: Sequence[Sequence[int] | None],
    pieces: Sequence[Sequence[bytes | None]],
) -> list[bytes] | None:
    """Entries where every row and piece is kept, as they are of most nodes; else ``None``."""
    try:
        found = [pieces[rows[number][amount]][number] for number in numbers]  # type: ignore[index]
    except (TypeError, IndexError):  # no row, or one that does not go so far
        return None
    return found if all(found) else None  # type: ignore[return-value]  # nothing is missing


def _names(args: ExtenderArgs) -> list[NodeName]:
    if args.node_names is not None:
        return args.node_names
    return list(messages.items_of(args.nodes)) if messages.given(args.nodes) else []


def _entry(name: str, rating: int) -> bytes:
    return messages.encode(HostPriority(name, rating))
