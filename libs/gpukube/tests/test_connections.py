"""Which connections a listener closes, and when: every rule with a clock that the test turns."""

import socket
from unittest.mock import Mock

import pytest

from gpukube.server.connections import (
    MOST_ADDRESSES,
    ConnectionGate,
    ConnectionPhase,
    Limits,
    Rates,
)

LIMITS = Limits(connections=4, head=10, busy=60, idle=120, rate=1, burst=100)


class Clock:
    """Shows what the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Transport:
    """Remembers that it was aborted."""

    aborted = False

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted = True


class Clients:
    """A gate with connections that are named by address and port."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.clock = Clock()
        self.gate = ConnectionGate(limits, self.clock)
        self.transports: dict[tuple[str, int], Transport] = {}

    def open(self, address: str, port: int, phase: ConnectionPhase = ConnectionPhase.HEAD) -> bool:
        """Whether the gate takes the connection in; a second passes."""
        self.clock.now += 1
        connection = self.gate.admit(Mock(socket.socket), (address, port))
        if connection is None:
            return False
        connection.transport = self.transports[address, port] = Transport()
        if phase is not ConnectionPhase.HEAD:
            self.gate.request_received(connection)
        if phase is ConnectionPhase.IDLE:
            self.gate.answered((address, port))
        return True

    @property
    def closed(self) -> list[tuple[str, int]]:
        """The connections that were aborted."""
        return [peer for peer, transport in self.transports.items() if transport.aborted]


@pytest.fixture
def clients() -> Clients:
    return Clients()


def test_a_full_listener_closes_the_oldest_connection_of_the_address_with_most(
    clients: Clients,
) -> None:
    """One attacker with many half-open requests loses one of them to every client that comes."""
    clients.open("10.0.0.9", 1)
    for port in (1, 2, 3):
        clients.open("10.0.0.66", port)
    assert clients.open("10.0.0.1", 1)
    assert clients.closed == [("10.0.0.66", 1)]
    assert clients.open("10.0.0.2", 1)
    assert clients.closed == [("10.0.0.66", 1), ("10.0.0.66", 2)]
    assert len(clients.gate) == LIMITS.connections
    assert clients.gate.closed == {"full": 2}


def test_a_request_that_is_being_answered_outlives_those_that_wait(clients: Clients) -> None:
    """A verb in flight is not given up for a client that has not even sent a request."""
    for port in (1, 2, 3):
        clients.open("10.0.0.1", port, ConnectionPhase.BUSY)
    clients.open("10.0.0.2", 1, ConnectionPhase.IDLE)
    clients.open("10.0.0.3", 1)
    assert clients.closed == [("10.0.0.2", 1)]


def test_of_requests_alone_the_oldest_is_closed(clients: Clients) -> None:
    """A new client comes in even where every place is taken by a slow request."""
    for port in (1, 2, 3, 4):
        clients.open("10.0.0.66", port, ConnectionPhase.BUSY)
    assert clients.open("10.0.0.1", 1)
    assert clients.closed == [("10.0.0.66", 1)]


def test_requests_without_an_end_keep_no_other_client_out() -> None:
    """One address sends a hundred a second; the handshake of another client takes longer."""
    clients = Clients(Limits(connections=16, rate=100, burst=1000))
    for port in range(1, 17):
        clients.open("10.0.0.66", port, ConnectionPhase.BUSY)
    clients.open("10.0.0.1", 1, ConnectionPhase.BUSY)
    clients.open("10.0.0.2", 1)
    for port in range(17, 60):
        clients.open("10.0.0.66", port, ConnectionPhase.BUSY)
    assert {address for address, _ in clients.closed} == {"10.0.0.66"}
    assert len(clients.gate) == 16


@pytest.mark.parametrize(
    ("phase", "seconds"),
    [(ConnectionPhase.HEAD, 10), (ConnectionPhase.BUSY, 60), (ConnectionPhase.IDLE, 120)],
)
def test_each_phase_has_its_time(clients: Clients, phase: ConnectionPhase, seconds: int) -> None:
    """A client slower than the limit of the phase is disconnected, and none before that."""
    clients.open("10.0.0.1", 1, phase)
    clients.clock.now += seconds
    clients.gate.sweep()
    assert not clients.closed
    clients.clock.now += 0.1
    clients.gate.sweep()
    assert clients.closed == [("10.0.0.1", 1)]
    assert clients.gate.closed == {phase.value: 1}
    assert len(clients.gate) == 0


def test_a_response_may_be_endless_where_that_is_allowed() -> None:
    """An event stream of the dashboard lasts as long as its page is open."""
    clients = Clients(Limits(connections=4, busy=None))
    clients.open("10.0.0.1", 1, ConnectionPhase.BUSY)
    clients.clock.now += 86_400
    clients.gate.sweep()
    assert not clients.closed


def test_the_next_request_has_its_own_time(clients: Clients) -> None:
    """A kept connection that begins a request and stalls is closed like a new one."""
    clients.open("10.0.0.1", 1, ConnectionPhase.IDLE)
    connection = clients.gate._open["10.0.0.1", 1]
    clients.clock.now += 100
    clients.gate.received(connection)
    clients.clock.now += LIMITS.head + 0.1
    clients.gate.sweep()
    assert clients.gate.closed == {"head": 1}


def test_an_address_opens_connections_at_a_limited_rate() -> None:
    """After its burst an address opens as many as the rate allows; others are not affected."""
    clients = Clients(Limits(connections=1000, rate=0.5, burst=3))
    opened = [clients.open("10.0.0.66", port) for port in range(7)]
    assert opened == [True, True, True, True, True, False, True]
    assert clients.open("10.0.0.1", 1)
    assert clients.gate.closed == {"rate": 1}


def test_later_requests_count_where_they_are_to() -> None:
    """Loops over a kept connection are cut off like loops of new ones, pipelined or not."""
    clients = Clients(Limits(connections=9, rate=0.001, burst=4, each_request=True))
    clients.open("10.0.0.66", 1)
    connection = clients.gate._open["10.0.0.66", 1]
    assert clients.gate.request_received(connection)
    assert clients.gate.request_received(connection, 3)
    assert not clients.gate.request_received(connection)
    assert clients.closed == [("10.0.0.66", 1)]
    assert clients.gate.closed == {"rate": 1}


def test_loopback_has_no_rate() -> None:
    """The scheduler beside the extender binds as many pods at once as it likes."""
    rates = Rates(rate=1, burst=1)
    assert all(rates.allow("127.0.0.1", 0) for _ in range(1000))


def test_addresses_that_are_long_gone_are_forgotten() -> None:
    """What is known of addresses is bounded, and an address in use is kept."""
    rates = Rates(rate=0.001, burst=2)
    for number in range(MOST_ADDRESSES + 10):
        rates.allow(f"fd00::{number}", 0)
    assert len(rates._buckets) == MOST_ADDRESSES
    assert rates.allow("fd00::0", 0)


def test_a_connection_that_ended_takes_no_place(clients: Clients) -> None:
    """Forgetting is by connection: an older one of the same port does not remove its successor."""
    clients.open("10.0.0.1", 1)
    first = clients.gate._open["10.0.0.1", 1]
    clients.open("10.0.0.1", 1)
    clients.gate.forget(first)
    assert len(clients.gate) == 1


def test_limits_keep_within_the_files_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few file descriptors a listener takes a part of them alone."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 1024))
    assert Limits(connections=4096).within_files(0.25).connections == 256
    assert Limits(connections=64).within_files(0.25).connections == 64
