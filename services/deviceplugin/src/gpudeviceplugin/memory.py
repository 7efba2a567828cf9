"""Releases memory that only the start needed, because the plugin runs on every GPU node.

Importing leaves much freed memory with the allocator, which keeps it for a use that never comes.
Where the C library has no such call (musl), nothing happens.
"""

import asyncio
import ctypes
import gc
from typing import Final

EVERY_SECONDS: Final = 3600.0


def give_back() -> None:
    """Collect what is unreachable, and hand free pages to the system."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def keep_small(started: asyncio.Event) -> None:
    """Give back after the start and then every so often, until cancelled."""
    await started.wait()
    while True:
        give_back()
        await asyncio.sleep(EVERY_SECONDS)
