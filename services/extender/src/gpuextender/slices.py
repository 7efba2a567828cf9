"""Long answers in slices, so that a scheduler need not wait for them.

What people ask about thousands of nodes takes tenths of a second, and everything happens on one
event loop: whoever works through many nodes pauses between them once a slice is used up. What is
said of each node is true when it is worked out; the cluster may change between two of them.
"""

import asyncio
from time import perf_counter
from typing import Any, Final

import msgspec

from gpuextender import messages

SECONDS: Final = 0.001


class Slices:
    """The slices of one long answer."""

    def __init__(self) -> None:
        self._until = perf_counter() + SECONDS

    async def breathe(self) -> None:
        """Let others work, if this slice is used up."""
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SECONDS


async def encoded(view: msgspec.Struct, slices: Slices) -> bytes:
    """``view`` as JSON, as ``msgspec`` writes it; its lists are written item by item."""
    brief = view.__struct_config__.omit_defaults
    parts = []
    for field in msgspec.structs.fields(view):
        value = getattr(view, field.name)
        if not (brief and value == field.default):
            key = messages.encode(field.encode_name)
            parts.append(key + b":" + await _encoded(value, slices))
    return b"{" + b",".join(parts) + b"}"


async def _encoded(value: Any, slices: Slices) -> bytes:
    if not isinstance(value, list):
        return messages.encode(value)
    items = []
    for item in value:
        items.append(messages.encode(item))
        await slices.breathe()
    return b"[" + b",".join(items) + b"]"
