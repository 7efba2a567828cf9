"""Ending a program of asyncio in order: what it started is ended before it ends itself."""

import asyncio
import signal
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_on_signals() -> None:
    """Cancel the current task when the process is instructed to end; its ``finally`` blocks run."""
    task = asyncio.current_task()
    assert task is not None
    for one in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(one, task.cancel)
