"""prioritize: how good each node is for a pod, 0..10, so that shares pack nodes and not only cards.

A node that is unknown, or turns out not to fit, scores 0 and never voids the list. Answers are kept
encoded, a fragment a node, since thousands of them are sent for every pod and few change.
"""

from typing import Final

from gpucore.model import Demand
from gpucore.policy import score
from gpucore.units import NodeName
from gpucore.wire.errors import WireError
from gpucore.wire.pods import decode_pod
from gpuextender import messages
from gpuextender.memo import Memo
from gpuextender.messages import ExtenderArgs, HostPriority, MessageError
from gpuextender.state import State

_EMPTY: Final = b"[]"


class Prioritize:
    """The verb.

    Args:
        policy: where neither pod nor node says.
    """

    def __init__(self, state: State, *, policy: str) -> None:
        self._state = state
        self._policy = policy
        self._entries: Memo[Demand, bytes] = Memo()

    def touch(self, node: NodeName) -> None:
        """The books of ``node`` changed."""
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
        demand = None
        if messages.given(args.pod):
            demand = self._state.saw(decode_pod(args.pod)).demand
        if demand is None:
            return messages.encode([HostPriority(name, 0) for name in names])
        kept = self._entries.of(demand)
        entries = [kept.get(NodeName(n)) or self._entry(kept, n, demand) for n in names]
        return b"[" + b",".join(entries) + b"]"

    def _entry(self, kept: dict[NodeName, bytes], name: str, demand: Demand) -> bytes:
        account = self._state.ledger.node(NodeName(name))
        if account is None:  # not kept: unknown names must not fill memory
            return messages.encode(HostPriority(name, 0))
        entry = messages.encode(HostPriority(name, score(account, demand, self._policy)))
        kept[account.name] = entry
        return entry
