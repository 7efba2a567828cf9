"""Computes long replies in slices, so that scheduler requests need not wait for them.

A read of thousands of nodes takes tenths of a second, and the process has one event loop: a loop
over many nodes yields between nodes once its slice is used up. The data of each node is current
when it is computed; the cluster may change between two nodes.
"""

import asyncio
from time import perf_counter
from typing import Any, Final, TypeVar

import msgspec

from gpucore.steps import Steps

SECONDS: Final = 0.001
_json: Final = msgspec.json.Encoder().encode
T = TypeVar("T")


class TimeSlices:
    """The slices of one long answer."""

    def __init__(self) -> None:
        self._until = perf_counter() + SECONDS

    async def yield_to_loop(self) -> None:
        """Let others work, if this slice is used up."""
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SECONDS

    async def finish(self, steps: Steps[T]) -> T:
        """The result of ``steps``; others work between two of them."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.yield_to_loop()


async def encoded(view: msgspec.Struct, slices: TimeSlices) -> bytes:
    """``view`` as JSON, as ``msgspec`` writes it; its lists are written item by item."""
    brief = view.__struct_config__.omit_defaults
    parts = [b"{"]
    for field in msgspec.structs.fields(view):
        value = getattr(view, field.name)
        if not (brief and value == field.default):
            parts += (b"," if len(parts) > 1 else b"", _json(field.encode_name), b":")
            await _encode(value, parts, slices)
    parts.append(b"}")
    return b"".join(parts)


async def _encode(value: Any, parts: list[bytes], slices: TimeSlices) -> None:
    if not isinstance(value, list):
        parts.append(_json(value))
        return
    parts.append(b"[")
    for place, item in enumerate(value):
        parts += (b"," if place else b"", _json(item))
        await slices.yield_to_loop()
    parts.append(b"]")
