"""Answers about nodes that need not be worked out again until the node's books change.

A scheduler asks the same question (the pods of one Deployment) about the same thousands of nodes
again and again, while each bind changes one of them. Answers are kept by question and by the node's
number in the :mod:`gpuextender.roster`; a node that is touched loses all of its answers. What is
missing is worked out a slice at a time, with room for other requests in between.

Bounded by the number of questions kept. Not promised: that a long answer is of one moment; each
node's part of it is true when the answer is given.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from time import perf_counter
from typing import Final, Generic, TypeVar

from gpuextender.roster import Roster

QUESTIONS: Final = 64
SLICE_SECONDS: Final = 0.001
FIRST_BATCH: Final = 4
"""Answers before the first look at the clock; twice as many before each further one."""

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")


class Answers(Generic[Q, A]):
    """Answers by question, then by number; the question least recently asked goes first.

    Args:
        roster: numbers of the nodes.
        limit: how many questions are kept.
    """

    def __init__(self, roster: Roster, limit: int = QUESTIONS) -> None:
        self._roster = roster
        self._limit = limit
        self._tables: OrderedDict[Q, list[A | None]] = OrderedDict()

    def touch(self, number: int) -> None:
        """Forget all answers about a node."""
        for table in self._tables.values():
            if number < len(table):
                table[number] = None

    async def ask(
        self, question: Q, numbers: Sequence[int], work: Callable[[Sequence[int]], Sequence[A]]
    ) -> list[A]:
        """The answers about ``numbers``, in their order.

        Here an answer is anything that is true: what is false is taken for missing.

        Args:
            question: under what the answers are kept.
            numbers: of known nodes.
            work: gives some missing answers, for the state as it is then.
        """
        while True:
            table = self.table(question)
            found = list(map(table.__getitem__, numbers))
            if all(found):
                return found  # type: ignore[return-value]  # nothing is missing
            missing = [number for number, one in zip(numbers, found, strict=True) if not one]
            if not _fill(table, missing, work):
                await asyncio.sleep(0)

    def table(self, question: Q) -> list[A | None]:
        """Answers by number, to read and to fill in; until the next wait, then ask again."""
        table = self._tables.get(question)
        if table is None:
            table = self._tables[question] = []
            if len(self._tables) > self._limit:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(question)
        table.extend([None] * (len(self._roster) - len(table)))  # none where it is long enough
        return table


def _fill(
    table: list[A | None], missing: Sequence[int], work: Callable[[Sequence[int]], Sequence[A]]
) -> bool:
    """Enter answers until all are there or the slice is used up; whether all are."""
    until, done, size = perf_counter() + SLICE_SECONDS, 0, FIRST_BATCH
    while done < len(missing) and perf_counter() < until:
        batch = missing[done : done + size]
        for number, answer in zip(batch, work(batch), strict=True):
            table[number] = answer
        done, size = done + size, size * 2
    return done >= len(missing)
