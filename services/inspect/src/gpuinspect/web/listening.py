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
from gpukube.server.certificates import CertificateWatcher
from gpukube.server.connections import ConnectionGate, Limits
from gpukube.server.listening import raise_file_limit

LIMITS: Final = Limits(connections=512, busy=None, rate=50, burst=500)
"""All viewers may come from the one address of an ingress; their event streams have no end."""
BODIES: Final = BodyLimits(each=64 << 10, together=4 << 20)
"""The login form takes a token; nothing else has a body."""


class Announced(GatedServer):
    """A server that reports its port.

    Args:
        on_listening: called once with the port, as soon as the server accepts connections.
        failed: called with the reason if it cannot listen.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        gate: ConnectionGate,
        on_listening: Callable[[int], None],
        failed: Callable[[str], None],
        certificates: CertificateWatcher | None = None,
    ) -> None:
        super().__init__(config, gate, certificates)
        self._on_listening, self._failed = on_listening, failed

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_listening(self.port)

    def failed_to_bind(self, error: OSError) -> None:
        self._failed(error.strerror or str(error))


def listen(
    app: ASGIApp,
    configure: Callable[[ASGIApp], uvicorn.Config],
    on_listening: Callable[[int], None],
    failed: Callable[[str], None],
    certificates: CertificateWatcher | None = None,
) -> None:
    """Serve until a signal; on failure to listen, call ``failed`` with the reason and exit.

    Args:
        certificates: have been loaded, to serve over TLS.
    """
    raise_file_limit()
    gate = ConnectionGate(LIMITS.within_files(), time.monotonic)
    config = configure(LimitedBodies(app, gate, BODIES))
    server = Announced(config, gate, on_listening, failed, certificates)
    try:
        with suppress(KeyboardInterrupt):
            server.run()
    except SystemExit:  # the server reported the reason
        sys.exit(1)
    if not server.started:
        sys.exit(STARTUP_FAILURE)
