"""Ending a program in order: what it started is ended before it ends itself."""

import asyncio
import signal
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heed_interrupts() -> None:
    """Let SIGINT end this process and those that it starts from now on.

    A shell that is no terminal's starts what runs in the background with SIGINT ignored, and every
    process below inherits that: an interrupted run would go on to its last deadline.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def end_on_signals() -> None:
    """Cancel the current task when the process is instructed to end; its ``finally`` blocks run."""
    task = asyncio.current_task()
    assert task is not None
    for one in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(one, task.cancel)
