"""Listens for the page, and says where once it does.

With port 0 the system chooses one that is free, which nobody can know before.
"""

import socket
import sys
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from uvicorn.config import STARTUP_FAILURE


class Announced(uvicorn.Server):
    """A server that tells its port.

    Args:
        config: of the server.
        tell: called once with the port, as soon as connections are taken.
    """

    def __init__(self, config: uvicorn.Config, tell: Callable[[int], None]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        (first, *_) = self.servers[0].sockets
        self._tell(int(first.getsockname()[1]))


def listen(config: uvicorn.Config, tell: Callable[[int], None]) -> None:
    """Serve until a signal; ends the process where it cannot listen."""
    server = Announced(config, tell)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)
