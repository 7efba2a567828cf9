"""SIGQUIT writes the stacks of all threads to standard error, and the process goes on.

A handler of ``faulthandler.register`` reads the stacks of threads that run meanwhile, and ends the
process with SIGSEGV now and then. So a thread waits for the signal, and holds the interpreter's
lock while it reads: every other thread stands still. A main thread that hangs is shown too.
"""

import faulthandler
import signal
import threading
from typing import Final

SIGNAL: Final = signal.SIGQUIT


def show_on_sigquit() -> None:
    """Call it while the main thread is the only one: threads and children inherit its mask."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})
    threading.Thread(target=_show, name="stacks", daemon=True).start()


def _show() -> None:
    while True:
        signal.sigwait({SIGNAL})
        faulthandler.dump_traceback(all_threads=True)
