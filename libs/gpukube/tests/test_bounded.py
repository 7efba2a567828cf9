"""A reply from a program that is not trusted takes neither all memory nor all time."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from gzip import compress
from pathlib import Path

import pytest
import yaml

from gpukube.blocking import BlockingClient
from gpukube.bounded import Bound
from gpukube.errors import InvalidReplyError, UnreachableError

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@contextmanager
def replying(send: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """A server that sends what a test wants to the first client; the URL of it."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                try:
                    send(client, ended)
                except OSError:
                    return  # the client closed the connection

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(60)


def client(url: str, folder: Path) -> BlockingClient:
    """A client of this server."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    return BlockingClient.connect(folder / "config", user_agent="test", seconds=60)


def test_a_reply_within_the_bounds_is_read(tmp_path: Path) -> None:
    """All of it."""

    def send(to: socket.socket, _ended: threading.Event) -> None:
        to.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    with replying(send) as url, client(url, tmp_path) as kube:
        assert kube.get_small("/x", most_bytes=5, seconds=60) == b"hello"


def test_an_endless_reply_ends_at_its_size(tmp_path: Path) -> None:
    """The connection is closed."""

    def send(to: socket.socket, ended: threading.Event) -> None:
        to.sendall(HEAD)
        while not ended.is_set():
            to.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")

    too_large = pytest.raises(InvalidReplyError, match="more than 100000 bytes")
    with replying(send) as url, client(url, tmp_path) as kube, too_large:
        kube.get_small("/x", most_bytes=100_000, seconds=60)


def test_a_reply_that_trickles_ends_at_its_time(tmp_path: Path) -> None:
    """Each byte comes in time, and the reply would never be complete.

    On a machine that stalls a byte may come late, and then the read ends at the same time.
    """

    def send(to: socket.socket, ended: threading.Event) -> None:
        to.sendall(HEAD)
        while not ended.wait(0.02):
            to.sendall(b"1\r\nx\r\n")

    with replying(send) as url, client(url, tmp_path) as kube:
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=r"not complete in time|timed out"):
            kube.get_small("/x", most_bytes=10**9, seconds=0.3)
        assert time.monotonic() - began < 30


def test_silence_ends_at_its_time(tmp_path: Path) -> None:
    """No byte comes at all."""

    def send(_to: socket.socket, ended: threading.Event) -> None:
        ended.wait(60)

    with replying(send) as url, client(url, tmp_path) as kube:
        began = time.monotonic()
        for seconds in (0.2, 0, -1):  # no time is left where a credential plugin took it
            with pytest.raises(UnreachableError):
                kube.get_small("/x", most_bytes=10, seconds=seconds)
            assert time.monotonic() - began < 30


def test_connecting_ends_at_the_same_time() -> None:
    """A connection that nobody takes would otherwise wait as long as the system lets it."""
    wait = Bound(10, time.monotonic() + 5).options()["timeout"]
    assert 0 < wait.connect_timeout <= 5
    assert 0 < wait.read_timeout <= 5


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 22\r\n\r\n"
        + compress(b"{}", mtime=0),
    ],
)
def test_a_whole_reply_leaves_its_connection_to_the_next_request(
    tmp_path: Path, reply: bytes
) -> None:
    """The server takes one connection and serves both requests over it."""

    def send(to: socket.socket, _ended: threading.Event) -> None:
        to.sendall(reply)
        to.recv(4096)
        to.sendall(reply)

    with replying(send) as url, client(url, tmp_path) as kube:
        first = kube.get_small("/x", most_bytes=5, seconds=60)
        assert kube.get_small("/x", most_bytes=5, seconds=60) == first
