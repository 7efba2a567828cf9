"""A TCP listener whose connections pass a :class:`~gpukube.server.connections.ConnectionGate`.

``loop.create_server`` accepts whatever comes, so sockets are accepted here, and handed to any
asyncio protocol: uvicorn's and aiohttp's alike.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, cast

from gpukube.server.connections import Connection, ConnectionGate, ConnectionPhase

HEAD_BYTES: Final = 64 * 1024
"""Maximum size of a request's head; clients send a few hundred bytes."""
END_OF_HEAD: Final = b"\r\n\r\n"
MOST_FILES: Final = 65_536
SWEEP_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
ACCEPTS_AT_ONCE: Final = 4
BACKLOG: Final = 512
_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""The kernel has no addresses of this family, such as IPv6 where it was switched off."""

log = logging.getLogger(__name__)


def raise_file_limit() -> None:
    """Allow this process as many file descriptors as it may have, as Go programs do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Guarded(asyncio.Protocol):
    """A protocol between a transport and an HTTP server that notifies the gate."""

    def __init__(
        self, gate: ConnectionGate, connection: Connection, inner: asyncio.Protocol
    ) -> None:
        self._gate, self._connection, self._inner = gate, connection, inner
        self._size = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.transport = cast(asyncio.Transport, transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._gate.received(self._connection)
        followed = self._connection.phase is ConnectionPhase.HEAD or self._gate.limits.each_request
        if not followed or self._fits(data):
            self._inner.data_received(data)

    def _fits(self, data: bytes) -> bool:
        """Follow the heads of requests; false where one is too long, or too many come."""
        known = self._tail + data
        if heads := known.count(END_OF_HEAD):
            rest = known[known.rindex(END_OF_HEAD) + len(END_OF_HEAD) :]
            self._size, self._tail = 0, rest[-len(END_OF_HEAD) + 1 :]
            return self._gate.request_received(self._connection, heads)
        self._size += len(data)
        self._tail = known[-len(END_OF_HEAD) + 1 :]
        if self._size > HEAD_BYTES:
            self._gate.close(self._connection.peer, "size")
            return False
        return True

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.forget(self._connection)
        self._inner.connection_lost(exc)


class Listener:
    """Accepts connections until :meth:`close`.

    Args:
        make: a protocol of the HTTP server, for one connection.
        sockets: bound.
        context: of each new connection, to serve over TLS.
    """

    def __init__(
        self,
        gate: ConnectionGate,
        make: Callable[[], asyncio.Protocol],
        sockets: Sequence[socket.socket],
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self.sockets = tuple(sockets)
        self._gate, self._make, self._context = gate, make, context
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None
        self._report_refusals: dict[str, float] = {}

    def start(self) -> None:
        """Begin to accept."""
        for sock in self.sockets:
            sock.listen(BACKLOG)
            self._loop.add_reader(sock, self._accept, sock)
        self._sweeping = self._loop.create_task(self._sweep())

    def is_serving(self) -> bool:
        return self._sweeping is not None

    def close(self) -> None:
        """Accept no more; connections that are open stay."""
        for sock in self.sockets if self._sweeping else ():
            self._loop.remove_reader(sock)
            sock.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    async def wait_closed(self) -> None:
        """Return once no connection is beginning any more."""
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            self._begin(sock, (str(address[0]), int(address[1])))

    def _begin(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        connection = self._gate.admit(sock, peer)
        if connection is None:
            sock.close()
            return
        task = self._loop.create_task(self._connect(connection, sock))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        sock.settimeout(0)
        context = self._context()
        limits = {} if context is None else {"ssl_handshake_timeout": self._gate.limits.head}
        try:
            await self._loop.connect_accepted_socket(
                lambda: Guarded(self._gate, connection, self._make()),
                sock,
                ssl=context,
                **limits,
            )
        except OSError as error:  # ssl.SSLError and TimeoutError among them
            self._gate.forget(connection)
            sock.close()
            self._log_failure(connection.peer[0], error)

    def _log_failure(self, address: str, error: OSError) -> None:
        """A certificate of a client that is not accepted, once a minute by its fault."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            log.debug("connection from %s failed: %s", address, error)
            return
        fault, now = error.verify_message, self._loop.time()
        if now >= self._report_refusals.get(fault, now):
            self._report_refusals[fault] = now + REPORT_SECONDS
            log.warning("client certificate from %s refused: %s", address, fault)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Without file descriptors the socket stays readable: look again in a moment."""
        log.warning("cannot accept connections: %s", error)
        self._loop.remove_reader(listening)
        self._loop.call_later(PAUSE_SECONDS, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if self._sweeping is not None:
            self._loop.add_reader(listening, self._accept, listening)

    async def _sweep(self) -> None:
        reported, after = self._gate.closed.total(), self._loop.time()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._gate.sweep()
            if self._gate.closed.total() > reported and self._loop.time() >= after:
                log.warning("connections closed by limits: %s", dict(self._gate.closed))
                reported, after = self._gate.closed.total(), self._loop.time() + REPORT_SECONDS


async def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets for every address of a host name, not listening yet.

    Args:
        host: a name or address; empty for all addresses, of IPv4 and of IPv6, as far as the kernel
            has both.
        port: with 0 a free one, the same for all sockets.

    Raises:
        OSError: the name is unknown, or the port is taken.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    sockets: list[socket.socket] = []
    lacking: OSError | None = None
    try:
        for family, (name, _, *more) in addresses:
            taken = port or (sockets[0].getsockname()[1] if sockets else 0)
            try:
                sockets.append(_bound_socket(family, (name, taken, *more)))
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
                lacking = error
        if not sockets:
            raise lacking or OSError(f"{host!r} has no address")
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _bound_socket(family: int, address: tuple[str | int, ...]) -> socket.socket:
    # asyncio sets TCP_NODELAY only where the protocol is given; without it an answer of two writes
    # waits for the client's delayed acknowledgement, 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
