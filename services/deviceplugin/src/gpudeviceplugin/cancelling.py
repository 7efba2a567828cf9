"""Work that a cancellation must not interrupt: started processes and their termination.

A stopping plugin cancels all its tasks at any moment. Nothing here has a deadline of its own: the
work that is protected must be bounded.
"""

import asyncio
import errno
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


async def spawn(*command: str, **how: Any) -> asyncio.subprocess.Process:
    """Start a program, as ``asyncio.create_subprocess_exec`` does.

    That one may wait for ever, or lose the program, where it is cancelled while the pipes are
    connected (CPython's issues 103847 and 125502), so it is never cancelled: when the caller is,
    the program is awaited, killed and reaped.

    Raises:
        OSError: there is no such program, or the node has no free process id.
    """
    starting = asyncio.create_task(_started(command, how))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await to_its_end(_discard(starting))
        raise


async def _started(command: tuple[str, ...], how: dict[str, Any]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*command, **how)
    except RuntimeError as error:  # before Python 3.12 a thread waits for each program
        raise OSError(errno.EAGAIN, str(error)) from error


async def _discard(starting: asyncio.Task[asyncio.subprocess.Process]) -> None:
    with suppress(OSError):
        process = await starting
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do bounded work although cancelled, again and again maybe: nothing may be left behind."""
    task = asyncio.create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError
