"""Threads on a node that may have no free process ID, as under a tenant's fork bomb.

The end of the plugin would be the end of its MPS daemons, and so of the pods behind them.
"""

from concurrent.futures import ThreadPoolExecutor


class ThreadPool(ThreadPoolExecutor):
    """A pool that goes on with the threads that it has where no other can be started.

    One is started at once, so that there is always one.

    Args:
        most: maximum number of threads; ``None`` for Python's own default.
        name: prefix of their names.
    """

    def __init__(self, most: int | None = None, *, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        """Start a thread for the work that was queued, or leave that to those that there are."""
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
