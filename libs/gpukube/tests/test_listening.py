"""The listener over real sockets: half-open clients lose their connections, others are served."""

import asyncio
import errno
import resource
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpukube.server import listening
from gpukube.server.connections import ConnectionGate, Limits
from gpukube.server.listening import HEAD_BYTES, Listener, bound
from gpukube.testing.certificates import make_certificate
from gpukube.testing.clock import FakeClock
from gpukube.testing.waiting import until

pytestmark = pytest.mark.slow

SECONDS = 60.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Greets(asyncio.Protocol):
    """Answers each chunk that ends a head, and notifies the gate as a server would."""

    def __init__(self, gate: ConnectionGate) -> None:
        self._gate = gate
        self._got = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._got.endswith(b"\r\n\r\n"):
            self._got = b""
            self._transport.write(b"hello")
            self._gate.answered(self._transport.get_extra_info("peername"))


@asynccontextmanager
async def served(
    limits: Limits, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, ConnectionGate]]:
    """A listener on a free port of this machine."""
    gate = ConnectionGate(limits, asyncio.get_running_loop().time)
    listener = Listener(gate, lambda: Greets(gate), await bound("127.0.0.1", 0), lambda: context)
    listener.start()
    try:
        async with asyncio.timeout(SECONDS):
            yield listener.sockets[0].getsockname()[1], gate
    finally:
        listener.close()
        await listener.wait_closed()
        for connection in list(gate._open.values()):
            connection.abort()


async def half_open(port: int, sent: bytes = b"GET /") -> tuple[Any, Any]:
    """A client that has begun a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def greeted(port: int, **how: Any) -> bytes:
    """What a client is answered that sends a whole request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **how)
    writer.write(REQUEST)
    answer = await reader.readexactly(5)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return answer


async def ended(reader: asyncio.StreamReader) -> bool:
    """The other end has closed the connection."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_half_open_requests_never_keep_a_whole_one_out() -> None:
    """With every place taken by half a request, each new client is answered at once."""
    async with served(Limits(connections=20)) as (port, gate):
        opened = [await half_open(port) for _ in range(60)]
        for _ in range(10):
            assert await greeted(port) == b"hello"
        assert len(gate) <= 20
        assert gate.closed["full"] >= 40
        for _, writer in opened:
            writer.transport.abort()


async def test_answers_do_not_wait_for_the_clients_acknowledgement() -> None:
    """TCP_NODELAY is set on each connection: a head and a body may be two writes."""
    async with served(Limits(connections=20)) as (port, gate):
        _, writer = await half_open(port, REQUEST)
        await until("a connection", lambda: any(each.transport for each in gate._open.values()))
        (connection,) = gate._open.values()
        assert connection.transport is not None
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.transport.abort()


async def test_half_a_request_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed by the listener, without another client that needs the place."""
    monkeypatch.setattr(listening, "SWEEP_SECONDS", 0.01)
    async with served(Limits(connections=20, head=0.05)) as (port, gate):
        reader, writer = await half_open(port)
        assert await ended(reader)
        assert gate.closed == {"head": 1}
        writer.close()


async def test_a_head_without_end_is_cut_off() -> None:
    """No parser keeps what no client sends."""
    async with served(Limits(connections=20)) as (port, gate):
        reader, writer = await half_open(port, b"GET / HTTP/1.1\r\n" + b"x" * HEAD_BYTES)
        assert await ended(reader)
        assert gate.closed == {"size": 1}
        writer.close()


async def test_a_head_may_come_byte_by_byte() -> None:
    """Its end is found wherever the bytes are cut."""
    async with served(Limits(connections=20)) as (port, _):
        reader, writer = await half_open(port, b"")
        for byte in REQUEST:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await reader.readexactly(5) == b"hello"
        writer.close()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server with a certificate for this machine, and of a client that trusts it."""
    folder: Path = tmp_path_factory.mktemp("tls")
    files = ("-keyout", folder / "key", "-out", folder / "crt", "-days", "1", "-nodes")
    named = ("-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    command = ("openssl", "req", "-x509", *kind, *files, *named)
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "crt", folder / "key")
    return server, ssl.create_default_context(cafile=folder / "crt")


async def test_clients_that_never_shake_hands_keep_nobody_out(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    """A connection counts from its first packet, not from the end of the TLS handshake."""
    server, client = contexts
    async with served(Limits(connections=20), server) as (port, gate):
        opened = [await half_open(port, b"\x16\x03\x01") for _ in range(60)]
        for _ in range(3):
            assert await greeted(port, ssl=client) == b"hello"
        assert gate.closed["full"] >= 40
        for _, writer in opened:
            writer.transport.abort()


async def test_a_handshake_that_stalls_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """The same limit holds below TLS."""
    monkeypatch.setattr(listening, "SWEEP_SECONDS", 0.01)
    async with served(Limits(connections=20, head=0.05), contexts[0]) as (port, gate):
        reader, writer = await half_open(port, b"\x16\x03\x01")
        assert await ended(reader)
        writer.close()
        while len(gate):  # noqa: ASYNC110 - served() has a deadline
            await asyncio.sleep(0.001)


async def test_who_opens_too_fast_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is closed at once, and costs no place."""
    monkeypatch.setattr("gpukube.server.connections.LOOPBACK", frozenset())
    async with served(Limits(connections=20, rate=0.001, burst=2)) as (port, gate):
        assert await greeted(port) == b"hello"
        assert await greeted(port) == b"hello"
        reader, writer = await half_open(port)
        assert await ended(reader)
        assert gate.closed == {"rate": 1}
        writer.close()


async def test_pipelined_requests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests in one packet are no way around the rate."""
    monkeypatch.setattr("gpukube.server.connections.LOOPBACK", frozenset())
    limits = Limits(connections=20, rate=0.001, burst=50, each_request=True)
    async with served(limits) as (port, gate):
        reader, writer = await half_open(port, REQUEST * 40)
        assert await reader.readexactly(5) == b"hello"
        writer.write(REQUEST * 40)
        assert await ended(reader)
        assert gate.closed == {"rate": 1}
        writer.close()


async def test_a_request_whose_head_is_cut_after_another_one_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of its head is in two packets, the first of which completes the request before."""
    monkeypatch.setattr("gpukube.server.connections.LOOPBACK", frozenset())
    limits = Limits(connections=20, rate=0.001, burst=2, each_request=True)
    async with served(limits) as (port, gate):
        reader, writer = await half_open(port, REQUEST + REQUEST + REQUEST[:-2])
        while not gate.phases()["busy"]:  # noqa: ASYNC110 - served() has a deadline
            await asyncio.sleep(0.001)
        writer.write(REQUEST[-2:])
        assert await ended(reader)
        assert gate.closed == {"rate": 1}
        writer.close()


async def test_it_accepts_again_when_files_were_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without file descriptors it pauses instead of spinning, and goes on by itself."""
    async with served(Limits(connections=20)) as (port, _):
        accept, failures = socket.socket.accept, [OSError(24, "Too many open files")] * 2

        def short(self: socket.socket) -> Any:
            if failures:
                raise failures.pop()
            return accept(self)

        monkeypatch.setattr(socket.socket, "accept", short)
        assert await greeted(port) == b"hello"
        assert not failures


async def test_an_address_in_use_is_an_error() -> None:
    """And nothing stays open that was bound before."""
    async with served(Limits(connections=1)) as (port, _):
        with pytest.raises(OSError, match="in use"):
            await bound("127.0.0.1", port)


@pytest.mark.parametrize(
    ("soft", "hard", "set_to"),
    [
        (1024, 1_000_000, 65_536),
        (1024, 4096, 4096),
        (1024, -1, 65_536),
        (65_536, 1_000_000, None),
        (100_000, 1_000_000, None),
        (-1, -1, None),
        (4096, 4096, None),
    ],
)
def test_the_process_may_open_more_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, set_to: int | None
) -> None:
    """Up to the hard limit, at most 65,536; a limit that is higher already is left."""
    assert resource.RLIM_INFINITY == -1
    calls: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: calls.append((kind, pair)))
    listening.raise_file_limit()
    expected = [] if set_to is None else [(resource.RLIMIT_NOFILE, (set_to, hard))]
    assert calls == expected


async def test_both_families_can_have_one_port() -> None:
    """IPv4 and IPv6 are bound side by side, and a port is free again at once after a restart."""
    (first,) = await bound("127.0.0.1", 0)
    port = first.getsockname()[1]
    assert first.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert first.gettimeout() == 0
    first.close()
    try:
        found = await bound("", port)
    except OSError:  # no IPv6 on this machine
        pytest.skip("IPv6 is not there")
    try:
        for one in found:
            if one.family == socket.AF_INET6:
                assert one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        assert {one.getsockname()[1] for one in found} == {port}
    finally:
        for one in found:
            one.close()


class FakeSocket:
    """A listening socket without descriptors left."""

    def accept(self) -> Any:
        raise OSError(24, "Too many open files")


async def test_a_listener_without_descriptors_looks_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The socket stays readable, so that looking at it at once would take the whole processor."""
    watched: list[tuple[str, object]] = []
    gate = ConnectionGate(Limits(connections=1), asyncio.get_running_loop().time)
    one: Any = FakeSocket()
    listener = Listener(gate, lambda: Greets(gate), [])
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "remove_reader", lambda sock: watched.append(("off", sock)))
    monkeypatch.setattr(loop, "add_reader", lambda sock, *_: watched.append(("on", sock)))
    monkeypatch.setattr(listening, "PAUSE_SECONDS", 0.01)
    listener.start()
    listener._accept(one)
    assert watched == [("off", one)]
    await until("it looks again", lambda: len(watched) == 2)
    assert watched == [("off", one), ("on", one)]
    listener._accept(one)
    listener.close()
    assert not listener.is_serving()
    await asyncio.sleep(0.05)
    assert watched[2:] == [("off", one)]


async def test_closed_connections_are_reported_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: FakeClock
) -> None:
    """The log reports an attack without becoming a part of it; a quiet listener writes nothing."""
    gate = ConnectionGate(Limits(connections=1), clock.now)
    listener = Listener(gate, lambda: Greets(gate), [])
    listener.start()
    await asyncio.sleep(100)
    assert caplog.messages == []
    for _ in range(100):
        gate.closed["rate"] += 1
        await asyncio.sleep(1)
    assert len(caplog.messages) == 2
    assert caplog.messages[0] == "connections closed by limits: {'rate': 1}"
    listener.close()
    await listener.wait_closed()


def has_ipv6() -> bool:
    """Whether this machine has the loopback address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this kernel has no IPv6")
async def test_without_a_host_both_families_have_the_same_port() -> None:
    """A cluster with IPv6 alone probes the pod's IPv6 address."""
    sockets = await bound("", 0)
    try:
        assert {sock.family for sock in sockets} == {socket.AF_INET, socket.AF_INET6}
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


@pytest.mark.parametrize("code", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("absent", [socket.AF_INET, socket.AF_INET6])
async def test_a_kernel_with_one_family_listens_on_that(
    absent: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IPv6 may be switched off in a kernel, and IPv4 may have no address."""
    without(monkeypatch, absent, code)
    (sock,) = await bound("", 0)
    assert sock.family in {socket.AF_INET, socket.AF_INET6} - {absent}
    sock.close()


async def test_an_address_of_a_family_that_the_kernel_lacks_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody could connect to a server without a socket."""
    without(monkeypatch, socket.AF_INET6, errno.EAFNOSUPPORT)
    with pytest.raises(OSError, match="not supported"):
        await bound("::1", 0)


@pytest.mark.skipif(not has_ipv6(), reason="this kernel has no IPv6")
async def test_a_port_that_is_taken_in_one_family_is_an_error() -> None:
    """Half a server would answer some of its clients."""
    taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    with taken, pytest.raises(OSError, match="in use"):
        await bound("", taken.getsockname()[1])


def without(monkeypatch: pytest.MonkeyPatch, family: int, code: int) -> None:
    """Have the kernel refuse sockets of a family."""
    make = socket.socket

    def refusing(of: int, *args: Any, **kwargs: Any) -> socket.socket:
        if of == family:
            raise OSError(code, "Address family not supported by protocol")
        return make(of, *args, **kwargs)

    monkeypatch.setattr(listening.socket, "socket", refusing)


async def test_a_client_certificate_that_is_refused_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client sees only the end of the connection; the log has the reason."""
    for name in ("server", "client"):
        make_certificate(tmp_path / name, name)
    files = [
        (tmp_path / name / "tls.crt", tmp_path / name / "tls.key") for name in ("server", "client")
    ]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files[0])
    server.load_verify_locations(files[0][0])
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=files[0][0])
    client.load_cert_chain(*files[1])
    async with served(Limits(connections=9), server) as (port, gate):
        for _ in range(2):
            await asyncio.to_thread(_until_refused, port, client)
        await until("both are forgotten", lambda: len(gate) == 0)
    assert caplog.messages == ["client certificate from 127.0.0.1 refused: self-signed certificate"]


def _until_refused(port: int, context: ssl.SSLContext) -> None:
    """Connect, and read until the server ends it: in the handshake, or after it with TLS 1.3."""
    plain = socket.create_connection(("127.0.0.1", port))
    with (
        suppress(OSError),
        plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        assert connection.recv(1) == b""
