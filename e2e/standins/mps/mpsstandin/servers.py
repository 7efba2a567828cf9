"""The MPS servers of a daemon, one process a user, and the clients that each one has.

A server here is a process that does nothing: it is there to be listed, and to end with its daemon,
which it notices by the end of a pipe.
"""

import os
import signal
from contextlib import suppress


class Servers:
    """The servers of one daemon.

    Args:
        multi_user: one server, as the daemon's user, for clients of all users.
    """

    def __init__(self, *, multi_user: bool) -> None:
        self._multi_user = multi_user
        self._by_user: dict[int, int] = {}
        self._clients: dict[int, set[int]] = {}
        self._alive = os.pipe()

    def pids(self) -> list[int]:
        """All servers, in order of their start."""
        return list(self._clients)

    def clients(self, server: int) -> list[int]:
        """The clients of one server. Raises KeyError when there is no such server."""
        return sorted(self._clients[server])

    def connect(self, client: int, user: int) -> int | None:
        """The server that takes a client; None while users of another server must leave first."""
        user = os.geteuid() if self._multi_user else user
        busy = [pid for pid, clients in self._clients.items() if clients]
        if any(pid != self._by_user.get(user) for pid in busy):
            return None
        server = self.start(user)
        self._clients[server].add(client)
        return server

    def leave(self, client: int) -> bool:
        """A client has ended; True when it was known."""
        for clients in self._clients.values():
            if client in clients:
                clients.remove(client)
                return True
        return False

    def start(self, user: int) -> int:
        """The server of a user, started if need be; that of another user ends."""
        if user not in self._by_user:
            self.end()
            self._by_user[user] = pid = self._fork(user)
            self._clients[pid] = set()
        return self._by_user[user]

    def end(self) -> None:
        """End all servers."""
        for pid in self._clients:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._clients.clear()
        self._by_user.clear()

    def _fork(self, user: int) -> int:
        ready = os.pipe()
        pid = os.fork()
        if pid:
            os.close(ready[1])
            os.read(ready[0], 1)  # by then it is the user's process
            os.close(ready[0])
            return pid
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            reading, writing = self._alive
            os.dup2(reading, 0)
            os.dup2(ready[1], 1)
            os.closerange(2, max(reading, writing, *ready, 64) + 1)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setuid(user)
            os.close(1)
            os.read(0, 1)  # ends with the daemon, which alone can write
        finally:
            os._exit(0)
