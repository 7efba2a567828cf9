"""Listens for the page, and says where once it does.

With port 0 the system chooses one that is free, which nobody can know before. Connections are
limited, because viewers are not the only ones who reach the port.
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

from gpukube.asgiserver import GatedServer
from gpukube.bodies import BodyLimits, LimitedBodies
from gpukube.connections import Gate, Limits
from gpukube.listening import raise_file_limit

LIMITS: Final = Limits(connections=512, busy=None, rate=50, burst=500)
"""All viewers may come from the one address of an ingress; their event streams have no end."""
BODIES: Final = BodyLimits(each=64 << 10, together=4 << 20)
"""The login form takes a token; nothing else has a body."""


class Announced(GatedServer):
    """A server that tells its port.

    Args:
        config: of the server.
        gate: limits its connections.
        tell: called once with the port, as soon as connections are taken.
    """

    def __init__(self, config: uvicorn.Config, gate: Gate, tell: Callable[[int], None]) -> None:
        super().__init__(config, gate)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell(self.port)


def listen(
    app: ASGIApp, configure: Callable[[ASGIApp], uvicorn.Config], tell: Callable[[int], None]
) -> None:
    """Serve until a signal; ends the process where it cannot listen."""
    raise_file_limit()
    gate = Gate(LIMITS.within_files(), time.monotonic)
    server = Announced(configure(LimitedBodies(app, gate, BODIES)), gate, tell)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)
