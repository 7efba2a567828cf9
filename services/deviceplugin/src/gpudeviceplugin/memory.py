"""Releases memory that only the start needed, because the plugin runs on every GPU node.

Importing leaves much freed memory with the allocator, which keeps it for a use that never comes.
Where the C library has no call for this (musl), nothing happens. The code of libraries that ran at
the start alone is unmapped: it stays in the page cache, where the kernel reclaims it under
pressure, and is mapped again when it runs.
"""

import asyncio
import ctypes
import functools
import gc
from pathlib import Path
from typing import Final, NamedTuple

EVERY_SECONDS: Final = 3600.0
MAPPINGS: Final = Path("/proc/self/maps")
MADV_DONTNEED: Final = 4


class MappedCode(NamedTuple):
    """Where the code of a library is mapped."""

    address: int
    size: int


@functools.cache
def loaded_code() -> tuple[MappedCode, ...]:
    """The code of all libraries that are loaded at the first call, none of which is unloaded later.

    Python never unloads what it imported. The pages are those of files and never written, so that
    nothing is lost with them.
    """
    try:
        lines = MAPPINGS.read_text().splitlines()
    except OSError:
        return ()
    return tuple(_code(line) for line in lines if " r-xp " in line and "/" in line)


def give_back() -> None:
    """Collect what is unreachable, and hand free pages and those of code to the system."""
    gc.collect()
    library = ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)
    if trim is not None:
        trim(0)
    for each in loaded_code():
        library.madvise(ctypes.c_void_p(each.address), ctypes.c_size_t(each.size), MADV_DONTNEED)


async def keep_small(started: asyncio.Event) -> None:
    """Give back after the start and then every so often, until cancelled."""
    await started.wait()
    while True:
        give_back()
        await asyncio.sleep(EVERY_SECONDS)


def _code(line: str) -> MappedCode:
    addresses, _, _ = line.partition(" ")
    start, end = (int(address, 16) for address in addresses.split("-"))
    return MappedCode(start, end - start)
