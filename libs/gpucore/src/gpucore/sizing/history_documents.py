"""The document of the device plugin's ``/usage-history``, written and read within bounds.

What is read comes from another process over the network or from a file: it counts as data of
unknown origin, and nothing of it is taken over beyond :data:`MOST_HISTORIES` and the ranges below.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gpucore.sizing.buckets import LAST, LAST_SM, MOST_BUCKETS
from gpucore.sizing.usage_history import (
    NEVER,
    LimitEvent,
    Name,
    Number,
    Time,
    UsageHistory,
    WorkloadKey,
)
from gpucore.wire.documents import API_VERSION, PluginDocument
from gpucore.wire.errors import WireError, decoded

KIND: Final = "UsageHistoryList"
MOST_HISTORIES: Final = 500
"""Histories of one node."""
MOST_BYTES: Final = 2 * 1024 * 1024
"""500 histories with all buckets in use are about 1.5 MiB."""

_SmIndex = Annotated[int, Meta(ge=0, le=LAST_SM)]
_Index = Annotated[int, Meta(ge=0, le=LAST)]


class UsageHistoryDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A :class:`~gpucore.sizing.usage_history.UsageHistory`.

    Fields with a default are missing in documents of earlier versions.
    """

    key: WorkloadKey
    first_seen: Time
    last_seen: Time
    pods: Number
    starts: Number
    samples: Number
    buckets: Annotated[dict[_Index, Number], Meta(max_length=MOST_BUCKETS)]
    peak_bytes: Number
    start_peak_bytes: Number
    out_of_memory: Number
    requested_bytes: Number
    limit_bytes: Number
    faded_at: Time = 0.0
    ran_out: LimitEvent = NEVER
    reached: LimitEvent = NEVER
    gpus: Number = 0
    week_peak_bytes: Number = 0
    claims: bool = False
    sm_buckets: Annotated[dict[_SmIndex, Number], Meta(max_length=LAST_SM + 1)] = {}


class NodeHistories(msgspec.Struct, frozen=True):
    """The histories that a document has.

    Attributes:
        items: one history for each container of a workload.
    """

    node: str
    items: tuple[UsageHistory, ...]


class UsageHistoryList(msgspec.Struct, frozen=True, rename="camel"):
    """The histories of one node."""

    api_version: Literal["gpushare/v1"]
    kind: Literal["UsageHistoryList"]
    node: Name
    items: Annotated[list[UsageHistoryDoc], Meta(max_length=MOST_HISTORIES)]


_DECODER: Final = msgspec.json.Decoder(UsageHistoryList)


def encode_histories(node: str, histories: Iterable[UsageHistory]) -> bytes:
    """The document of a node with at most :data:`MOST_HISTORIES` histories."""
    items = list(histories)[:MOST_HISTORIES]
    return msgspec.json.encode(
        {"apiVersion": API_VERSION, "kind": KIND, "node": node, "items": items}
    )


def decode_histories(raw: bytes) -> list[UsageHistory]:
    """The histories in a document, of whichever node.

    Raises:
        WireError: as :func:`decode_node_histories`.
    """
    return list(decode_node_histories(raw).items)


def decode_node_histories(raw: bytes) -> NodeHistories:
    """The histories in a document, with their node.

    Raises:
        WireError: the document is too large, or not of this kind and version, or a value of it is
            outside its range.
    """
    if len(raw) > MOST_BYTES:
        raise WireError(f"a usage history of more than {MOST_BYTES} bytes")
    document = decoded(_DECODER, raw, "no usage history")
    return NodeHistories(document.node, tuple(_history(item) for item in document.items))


def _history(item: UsageHistoryDoc) -> UsageHistory:
    """A history whose parts agree with one another, whatever the document has."""
    fields = msgspec.structs.asdict(item)
    buckets = {index: count for index, count in item.buckets.items() if count}
    ran_out, peak = _ran_out(item), max(item.peak_bytes, item.start_peak_bytes)
    changed = {
        "buckets": buckets,
        "sm_buckets": {index: count for index, count in item.sm_buckets.items() if count},
        "samples": sum(buckets.values()),
        "peak_bytes": peak,
        "week_peak_bytes": min(item.week_peak_bytes, peak),
        "out_of_memory": max(item.out_of_memory, 1) if ran_out.at else 0,
        "ran_out": ran_out,
        "reached": _event(item, item.reached),
    }
    return UsageHistory(**{**fields, **changed})


def _ran_out(item: UsageHistoryDoc) -> LimitEvent:
    """The last time that it ran out; an earlier version counted these times only."""
    if item.out_of_memory and not item.ran_out.at:
        limit = max(item.limit_bytes, item.requested_bytes)
        return LimitEvent(item.last_seen, limit) if item.last_seen else NEVER
    return _event(item, item.ran_out)


def _event(item: UsageHistoryDoc, event: LimitEvent) -> LimitEvent:
    """An event is not later than the last sample: no other clock counts."""
    return event.until(item.last_seen) if event.at else NEVER


HISTORIES: Final = PluginDocument[NodeHistories](
    "usage-history", decode_node_histories, MOST_BYTES, seconds=20.0
)
