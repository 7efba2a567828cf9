"""prioritize: how good each node is for a pod, 0..10, so that shares pack nodes and not only cards.

A node that is unknown, or turns out not to fit, scores 0 and never voids the list. What is sent of
a node is kept encoded: plain shares by policy, node and amount, all else by demand and node.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from gpucore.account import NodeAccount
from gpucore.grouping import Grouping
from gpucore.model import Demand
from gpucore.policy import MAX_SCORE, score
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages, ratings
from gpuextender.gangs import Gangs
from gpuextender.memo import Memo
from gpuextender.messages import ExtenderArgs, HostPriority, MessageError
from gpuextender.state import State

BREATHE_EVERY: Final = 50
_EMPTY: Final = b"[]"
_Row = Sequence[bytes]


class Prioritize:
    """The verb.

    Args:
        policy: where neither pod nor node says.
        grouping: how cards that go together are chosen.
    """

    def __init__(self, state: State, gangs: Gangs, *, policy: str, grouping: Grouping) -> None:
        self._state = state
        self._gangs = gangs
        self._grouping = grouping
        self._policy = policy
        self._rows: Memo[str, _Row] = Memo()
        self._entries: Memo[Demand, bytes] = Memo()

    def touch(self, node: NodeName) -> None:
        """The books of ``node`` changed."""
        self._rows.touch(node)
        self._entries.touch(node)

    def answer(self, body: bytes) -> bytes:
        """The encoded ``HostPriorityList``; empty where the request cannot be read."""
        try:
            return self._rate(messages.decode(body, ExtenderArgs))
        except (MessageError, WireError):
            return _EMPTY

    def _rate(self, args: ExtenderArgs) -> bytes:
        names = args.node_names
        if names is None:
            names = list(messages.items_of(args.nodes)) if messages.given(args.nodes) else []
        demand, marks = None, None
        if messages.given(args.pod):
            asking = self._state.saw(decode_pod(args.pod))
            demand = asking.demand
            marks = self._gangs.marks(asking, names)
        if demand is None or marks is not None:
            known = marks or {}
            return messages.encode([HostPriority(name, known.get(name, 0)) for name in names])
        return b"[" + b",".join(self._list(names, demand)) + b"]"

    def _list(self, names: Sequence[NodeName], demand: Demand) -> list[bytes]:
        if not ratings.plain(demand):
            return [self._entry(name, demand) for name in names]
        amount = demand.mem
        rows = self._rows.of(demand.policy)
        return [
            row[amount]
            if (row := rows.get(name)) is not None and amount < len(row)
            else self._plain_entry(name, demand)
            for name in names
        ]

    async def warm(self) -> None:
        """Make the rows of all nodes beforehand, a few at a time, for pods without a policy."""
        for count, account in enumerate(list(self._state.ledger.nodes().values()), 1):
            rows = self._rows.of("")
            if account.name not in rows:
                rows[account.name] = self._row(account, "")
            if count % BREATHE_EVERY == 0:
                await asyncio.sleep(0)

    def _plain_entry(self, name: NodeName, demand: Demand) -> bytes:
        """Make the row of a node that has none yet; ask the core where a row cannot say."""
        rows = self._rows.of(demand.policy)
        account = self._state.ledger.node(name)
        if account is not None and account.name not in rows:
            row = rows[account.name] = self._row(account, demand.policy)
            if demand.mem < len(row):
                return row[demand.mem]
        return self._entry(name, demand)

    def _row(self, account: NodeAccount, policy: str) -> _Row:
        """What is sent of a node, by amount."""
        chosen = policy or account.shape.policy or self._policy
        pieces = [_entry(account.name, rating) for rating in range(MAX_SCORE + 1)]
        return [pieces[rating] for rating in ratings.table(account, chosen)]

    def _entry(self, name: NodeName, demand: Demand) -> bytes:
        kept = self._entries.of(demand)
        entry = kept.get(name)
        if entry is not None:
            return entry
        account = self._state.ledger.node(name)
        if account is None:  # not kept: unknown names must not fill memory
            return _entry(name, 0)
        rating = score(account, demand, self._policy, grouping=self._grouping)
        entry = kept[account.name] = _entry(name, rating)
        return entry


def _entry(name: str, rating: int) -> bytes:
    return messages.encode(HostPriority(name, rating))
