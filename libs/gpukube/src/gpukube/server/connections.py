"""Connection limits of a listener: how many are open, how fast they come, how long they may take.

HTTP servers limit requests, but a client that never completes one has made none, and holds a file
descriptor for as long as it likes. A :class:`ConnectionGate` decides below the HTTP server and
below TLS.
When the listener is full, a new connection replaces the one that is least likely to be missed. So
a client that sends its request at once, such as kubelet's probe, is answered while others hold
every place.

A connection is in one of three phases::

    accept ──> HEAD ──(end of the request's head)──> BUSY ──(answered)──> IDLE ──(next byte)──> HEAD

HEAD includes the TLS handshake. Each phase has a time limit.
"""

import asyncio
import resource
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

MOST_ADDRESSES: Final = 4096
BUSY_PART: Final = 7 / 8
"""Part of the connections above which those with a request are closed for new ones."""
LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})

Peer = tuple[str, int]
"""Address and port of a client."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one listener; times are in seconds.

    Attributes:
        connections: maximum number of open connections.
        head: maximum time from accept, or from the first byte of a later request, to the end of
            the request's head; includes the TLS handshake.
        busy: maximum time from there to the end of the response; ``None`` for endless responses.
        idle: maximum time between a response and the next request.
        rate: maximum number of new connections per second and remote address, in the long run;
            loopback addresses have none.
        burst: maximum number of new connections that one address may open at once.
        each_request: whether the later requests of a connection count like new connections; for
            listeners whose clients send few requests, and none with a body.
    """

    connections: int
    head: float = 10.0
    busy: float | None = 60.0
    idle: float = 120.0
    rate: float = 20.0
    burst: int = 100
    each_request: bool = False

    def within_files(self, part: float = 0.25) -> "Limits":
        """The same, with at most this part of the file descriptors that the process may open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return replace(self, connections=max(1, min(self.connections, int(soft * part))))


class ConnectionPhase(Enum):
    """The phase of a connection."""

    HEAD = "head"
    BUSY = "busy"
    IDLE = "idle"


class Connection:
    """One open connection.

    Attributes:
        phase: what it is doing.
        requests: how many it has sent.
        since: when its phase began.
        transport: ``None`` during the TLS handshake.
    """

    __slots__ = ("_sock", "peer", "phase", "requests", "since", "transport")

    def __init__(self, sock: socket.socket, peer: Peer, now: float) -> None:
        self._sock = sock
        self.peer = peer
        self.phase, self.since = ConnectionPhase.HEAD, now
        self.requests = 0
        self.transport: asyncio.Transport | None = None

    def abort(self) -> None:
        """Close it now."""
        if self.transport is not None:
            self.transport.abort()
            return
        with suppress(OSError):  # the handshake then ends with an error
            self._sock.shutdown(socket.SHUT_RDWR)


class ConnectionGate:
    """Decides about the connections of one listener.

    Args:
        clock: seconds, monotonic.

    Attributes:
        closed: number of connections that were closed or refused, by reason: ``rate``, ``full``,
            ``head``, ``busy``, ``idle`` (too slow) or ``size``.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self.closed: Counter[str] = Counter()
        self._clock = clock
        self._open: dict[Peer, Connection] = {}
        # By address, those with a request and those without; each in the order of their phases.
        self._busy: dict[str, dict[Connection, None]] = {}
        self._waiting: dict[str, dict[Connection, None]] = {}
        self._rates = Rates(limits.rate, limits.burst)

    def __len__(self) -> int:
        return len(self._open)

    def phases(self) -> Counter[str]:
        """Number of open connections by phase."""
        return Counter(one.phase.value for one in self._open.values())

    def admit(self, sock: socket.socket, peer: Peer) -> Connection | None:
        """Take in a new connection; ``None`` where its address opens too many per second."""
        now = self._clock()
        if not self._rates.allow(peer[0], now):
            self.closed["rate"] += 1
            return None
        if len(self._open) >= self.limits.connections:
            self._close(self._least_missed(), "full")
        connection = self._open[peer] = Connection(sock, peer, now)
        self._enter(connection, ConnectionPhase.HEAD)
        return connection

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._leave(connection)
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]

    def received(self, connection: Connection) -> None:
        """Note received bytes; the first ones after a response begin the next request."""
        if connection.phase is ConnectionPhase.IDLE:
            self._enter(connection, ConnectionPhase.HEAD)

    def request_received(self, connection: Connection, requests: int = 1) -> bool:
        """The heads of requests are complete; false where its address sends too many per second."""
        more = requests - (connection.requests == 0)  # accepting it has counted for the first
        connection.requests += requests
        self._enter(connection, ConnectionPhase.BUSY)
        counted = self.limits.each_request and more > 0
        allowed = not counted or self._rates.allow(connection.peer[0], self._clock(), more)
        if not allowed:
            self._close(connection, "rate")
        return allowed

    def answered(self, peer: Peer | None) -> None:
        """The client has the response to its request."""
        connection = self._find(peer)
        if connection is not None:
            self._enter(connection, ConnectionPhase.IDLE)

    def close(self, peer: Peer | None, reason: str) -> None:
        """Close the connection of a client, if it is open."""
        connection = self._find(peer)
        if connection is not None:
            self._close(connection, reason)

    def transport_info(self, peer: Peer | None, name: str) -> Any:
        """Extra information of a client connection's transport, such as its certificate."""
        connection = self._find(peer)
        transport = connection.transport if connection is not None else None
        return None if transport is None else transport.get_extra_info(name)

    def sweep(self) -> None:
        """Close every connection that exceeds the time limit of its phase."""
        now, limits = self._clock(), self.limits
        longest = {
            ConnectionPhase.HEAD: limits.head,
            ConnectionPhase.BUSY: limits.busy,
            ConnectionPhase.IDLE: limits.idle,
        }
        for connection in list(self._open.values()):
            limit = longest[connection.phase]
            if limit is not None and now - connection.since > limit:
                self._close(connection, connection.phase.value)

    def _find(self, peer: Peer | None) -> Connection | None:
        return None if peer is None else self._open.get((peer[0], peer[1]))

    def _close(self, connection: Connection, reason: str) -> None:
        self.closed[reason] += 1
        self.forget(connection)
        connection.abort()

    def _least_missed(self) -> Connection:
        """The oldest one without a request, of the address with most of them.

        Where requests take nearly all places, the oldest request of the address with most: a client
        whose requests never end would else keep the others from sending theirs.
        """
        busy = sum(map(len, self._busy.values()))
        crowded = not self._waiting or busy >= BUSY_PART * self.limits.connections
        heaviest = max((self._busy if crowded else self._waiting).values(), key=len)
        return next(iter(heaviest))

    def _enter(self, connection: Connection, phase: ConnectionPhase) -> None:
        """Begin a phase, as the youngest in it."""
        if self._open.get(connection.peer) is not connection:
            return  # it was closed, and what it had sent before is still being worked on
        self._leave(connection)
        connection.phase, connection.since = phase, self._clock()
        group = self._busy if phase is ConnectionPhase.BUSY else self._waiting
        group.setdefault(connection.peer[0], {})[connection] = None

    def _leave(self, connection: Connection) -> None:
        address = connection.peer[0]
        for group in (self._busy, self._waiting):
            group.get(address, {}).pop(connection, None)
            if not group.get(address):
                group.pop(address, None)


class Rates:
    """How many connections each address may open now: a bucket of tokens for each address."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._buckets: dict[str, tuple[float, float]] = {}

    def allow(self, address: str, now: float, count: int = 1) -> bool:
        """Take this number of tokens if the bucket holds them; false otherwise."""
        if address in LOOPBACK:
            return True
        tokens, then = self._buckets.pop(address, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        allowed = tokens >= count
        self._buckets[address] = (tokens - count * allowed, now)
        if len(self._buckets) > MOST_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]  # the one that was not seen for longest
        return allowed
