"""Clients that hold connections of the dashboard, or send too much, do not keep viewers out."""

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = 60.0
FILES = 256
PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
import gpuinspect.__main__
"""
SNAPSHOT = Path(__file__).parents[4] / "docs" / "examples" / "cluster.json"


@contextmanager
def with_few_files() -> Iterator[str]:
    """The dashboard in a process that may open few files; its URL."""
    flags = ("dashboard", "--port=0", f"--snapshot={SNAPSHOT}")
    command = (sys.executable, "-c", PROGRAM % (FILES, FILES), *flags)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield next(word for word in process.stderr.readline().split() if "://" in word)
        finally:
            process.kill()


@contextmanager
def half_open(url: str, count: int) -> Iterator[None]:
    """Clients that have sent half a request each, and wait."""
    host, port = url.rstrip("/").rsplit("/", 1)[1].split(":")
    sockets = []
    try:
        for _ in range(count):
            sockets.append(socket.create_connection((host, int(port)), SECONDS))
            sockets[-1].sendall(b"GET /")
        yield
    finally:
        for one in sockets:
            one.close()


def status(url: str, body: bytes | None = None) -> int:
    """The status of a request over a new connection; 0 without an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


@pytest.mark.slow
def test_half_open_requests_do_not_stop_the_dashboard() -> None:
    """With more half requests than the process may have files, viewers and probes are answered."""
    with with_few_files() as url, half_open(url, FILES + 20):
        assert [status(f"{url}healthz") for _ in range(5)] == [200] * 5
        assert status(url) in {200, 503}


@pytest.mark.slow
def test_a_body_that_no_page_takes_is_refused() -> None:
    """The only body is that of the login form."""
    with with_few_files() as url:
        assert status(f"{url}login", bytes(100_000)) in {413, 0}
        assert status(f"{url}healthz") == 200
