"""Listens for the dashboard and reports the port.

With port 0 the system chooses a free port. Connections are limited, because other programs than
browsers of users can reach the port.
"""

import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from gpukube.server.asgi import GatedServer
from gpukube.server.bodies import BodyLimits, LimitedBodies
from gpukube.server.connections import ConnectionGate, Limits
from gpukube.server.listening import raise_file_limit

LIMITS: Final = Limits(connections=512, busy=None, rate=50, burst=500)
"""All viewers may come from the one address of an ingress; their event streams have no end."""
BODIES: Final = BodyLimits(each=64 << 10, together=4 << 20)
"""The login form takes a token; nothing else has a body."""


class Announced(GatedServer):
    """A server that reports its port.

    Args:
        config: of the server.
        gate: limits its connections.
        tell: called once with the port, as soon as the server accepts connections.
    """

    def __init__(
        self, config: uvicorn.Config, gate: ConnectionGate, tell: Callable[[int], None]
    ) -> None:
        super().__init__(config, gate)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell(self.port)


def listen(
    app: ASGIApp,
    configure: Callable[[ASGIApp], uvicorn.Config],
    tell: Callable[[int], None],
    failed: Callable[[], None],
) -> None:
    """Serve until a signal; calls ``failed`` and ends the process where it cannot listen."""
    raise_file_limit()
    gate = ConnectionGate(LIMITS.within_files(), time.monotonic)
    server = Announced(configure(LimitedBodies(app, gate, BODIES)), gate, tell)
    try:
        with suppress(KeyboardInterrupt):
            server.run()
    except SystemExit:  # uvicorn's own answer to an address in use
        failed()
        sys.exit(1)
    if not server.started:
        sys.exit(STARTUP_FAILURE)
