"""uvicorn behind a gate; only services that have uvicorn import this."""

import logging
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from gpukube.server.certificates import CertificateWatcher
from gpukube.server.connections import ConnectionGate
from gpukube.server.listening import Listener, bound

log = logging.getLogger("uvicorn.error")


class GatedServer(uvicorn.Server):
    """A uvicorn server whose connections are limited.

    Args:
        certificates: have been loaded, to serve over TLS.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        gate: ConnectionGate,
        certificates: CertificateWatcher | None = None,
    ) -> None:
        super().__init__(config)
        self.gate, self._certificates = gate, certificates
        self._requests = log.getChild("requests")
        self._requests.setLevel(logging.ERROR)  # clients cause warnings, and could fill the log
        self._requests.addFilter(_is_our_failure)

    @property
    def port(self) -> int:
        """The address that it listens on; set once it has started."""
        found: int = self.servers[0].sockets[0].getsockname()[1]
        return found

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen behind the gate: uvicorn itself would accept every connection."""
        await super().startup(sockets=sockets or [])
        self.started = False
        try:
            found = await bound(self.config.host, self.config.port)
        except OSError as error:
            self.failed_to_bind(error)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        listener = Listener(self.gate, self._protocol, found, self._context)
        listener.start()
        self.config.ssl = self._context()  # for the log
        self.servers = [listener]  # type: ignore[list-item]  # has what uvicorn needs of one
        self._log_started_message(listener.sockets)
        self.started = True

    def failed_to_bind(self, error: OSError) -> None:
        """Report why it cannot listen; the process ends then."""
        log.error(error)  # as uvicorn logs it

    def _context(self) -> ssl.SSLContext | None:
        """What a new connection uses; ``None`` without TLS."""
        return None if self._certificates is None else self._certificates.newest

    def _protocol(self) -> Any:
        make: Callable[..., Any] = self.config.http_protocol_class
        protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        protocol.logger = self._requests
        return protocol


def _is_our_failure(line: logging.LogRecord) -> bool:
    """False where a client left before the reply to a request behind another one.

    uvicorn marks only the last request of a connection as disconnected, and uvloop raises where the
    reply to another one is written.
    """
    error = line.exc_info[1] if line.exc_info else None
    return not (isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"))
