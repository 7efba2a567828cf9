"""The client of programs without an event loop."""

import gzip
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from gpukube.blocking import BlockingClient, _continue
from gpukube.config import TokenConfig
from gpukube.errors import (
    ConfigError,
    ForbiddenError,
    GoneError,
    InvalidReplyError,
    NotFoundError,
    StatusError,
    ThrottledError,
    UnreachableError,
)
from gpukube.testing.certificates import make_certificate

pytestmark = pytest.mark.slow

PAGES = {
    "": b'{"metadata": {"continue": "2"}, "items": [1]}',
    "2": b'{"metadata": {}, "items": [2]}',
}

REDIRECTED = 307
THROTTLED = 429
LONG = 128 * 1024
"""Longer replies are compressed, as the API server does it where the client takes that."""


class FakeServer:
    """Replies by path, long bodies compressed; keeps what it was sent, and ports and lengths.

    Attributes:
        once: replies to one request each, by path and token, before the others.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes, str | None]] = []
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.ports: list[int] = []
        self.lengths: list[int] = []
        self.once: dict[str, tuple[int, bytes]] = {}
        self.retry_after = "1"
        server, once = self, self.once
        seen, replies, ports, lengths = self.requests, self.replies, self.ports, self.lengths

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                seen.append((self.command, self.path, body, self.headers["Content-Type"]))
                token = self.path.partition("continue=")[2]
                path = self.path.partition("?")[0]
                usual = replies.get(path, (200, PAGES.get(token, b"")))
                status, text = once.pop(f"{path} {token}".strip(), usual)
                ports.append(self.client_address[1])
                if status < 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                if status == REDIRECTED:
                    self.send_header("Location", "/elsewhere")
                if status == THROTTLED:
                    self.send_header("Retry-After", server.retry_after)
                if "gzip" in self.headers.get("Accept-Encoding", "") and len(text) > LONG:
                    text = gzip.compress(text)
                    self.send_header("Content-Encoding", "gzip")
                lengths.append(len(text))
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            # The names of the standard library.
            do_GET = do_POST = do_PATCH = do_DELETE = reply  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Tests print enough."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    def kubeconfig(self, folder: Path) -> Path:
        """Two contexts; the other one has a user without credentials."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "me"}},
                {"name": "other", "context": {"cluster": "c", "user": "you"}},
            ],
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.http.server_port}"}}
            ],
            "users": [
                {"name": "me", "user": {"token": "t"}},
                {"name": "you", "user": {"username": "u", "password": "p"}},
            ],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server in a thread."""
    fake = FakeServer()
    thread = threading.Thread(target=fake.http.serve_forever, args=(0.01,))
    thread.start()
    yield fake
    fake.http.shutdown()
    thread.join(60)
    fake.http.server_close()


@pytest.fixture
def client(server: FakeServer, tmp_path: Path) -> Iterator[BlockingClient]:
    """A client of it."""
    path = server.kubeconfig(tmp_path)
    with BlockingClient.connect(path, user_agent="test", seconds=60) as found:
        yield found


def test_a_list_is_read_page_by_page(client: BlockingClient, server: FakeServer) -> None:
    """The selector is part of every request; the version is part of the first one alone."""
    found = list(client.pages("/api/v1/pods", {"labelSelector": "a=b"}, cached=True))
    assert found == [PAGES[""], PAGES["2"]]
    assert [path for _, path, _, _ in server.requests] == [
        "/api/v1/pods?limit=2500&labelSelector=a%3Db&resourceVersion=0",
        "/api/v1/pods?limit=2500&labelSelector=a%3Db&continue=2",
    ]


def test_an_expired_list_goes_on_with_the_token_of_the_refusal(
    client: BlockingClient, server: FakeServer
) -> None:
    """Each page comes once; a second expiry without progress, or one without a token, is final."""
    gone = b'{"message": "too old", "metadata": {"continue": "rest"}}'
    server.once["/api/v1/pods 2"] = 410, gone
    server.once["/api/v1/pods rest"] = 200, PAGES["2"]
    assert list(client.pages("/api/v1/pods")) == [PAGES[""], PAGES["2"]]
    for tokens, body in ((("2",), b'{"message": "too old"}'), (("2", "rest"), gone)):
        server.once |= {f"/api/v1/pods {token}": (410, body) for token in tokens}
        with pytest.raises(GoneError, match="410 too old"):
            list(client.pages("/api/v1/pods"))


@pytest.mark.parametrize(("retry_after", "requests"), [("1", 2), ("0", 1), ("11", 1)])
def test_a_read_is_repeated_once_for_an_overloaded_server(
    client: BlockingClient, server: FakeServer, retry_after: str, requests: int
) -> None:
    """After the time that it sets, of at most ten seconds; a write is not repeated."""
    server.retry_after = retry_after
    server.replies["/api/v1/pods"] = THROTTLED, b'{"message": "wait"}'
    with pytest.raises(ThrottledError, match="429 wait"):
        client.get("/api/v1/pods")
    assert len(server.requests) == requests
    with pytest.raises(ThrottledError):
        client.post("/api/v1/pods", {})
    assert len(server.requests) == requests + 1


def test_long_lists_come_compressed(client: BlockingClient, server: FakeServer) -> None:
    """Pods repeat each other, and what waits for them is often the network."""
    items = b",".join([b'{"metadata": {"name": "p"}}'] * 10_000)
    body = b'{"metadata": {}, "items": [' + items + b"]}"
    server.replies["/api/v1/pods"] = (200, body)
    assert list(client.pages("/api/v1/pods")) == [body]
    assert server.lengths[0] < len(body) / 50


def test_an_unverified_server_causes_no_warning(server: FakeServer, tmp_path: Path) -> None:
    """A kubeconfig that requests no verification gets none, without a warning a request."""
    make_certificate(tmp_path, "fake")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    path = server.kubeconfig(tmp_path)
    document = yaml.safe_load(path.read_text())
    address = f"https://127.0.0.1:{server.http.server_port}"
    document["clusters"][0]["cluster"] = {"server": address, "insecure-skip-tls-verify": True}
    path.write_text(yaml.safe_dump(document))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with BlockingClient.connect(path, user_agent="test", seconds=60) as client:
            assert client.get("/api/v1/pods") == PAGES[""]


def test_what_is_sent_is_json_of_its_kind(client: BlockingClient, server: FakeServer) -> None:
    """A review is posted; a JSON patch has a media type of its own."""
    client.post("/reviews", {"spec": {}})
    client.json_patch("/nodes/n", [{"op": "remove", "path": "/a"}])
    assert server.requests == [
        ("POST", "/reviews", b'{"spec":{}}', "application/json"),
        ("PATCH", "/nodes/n", b'[{"op":"remove","path":"/a"}]', "application/json-patch+json"),
    ]


def test_an_object_is_deleted_with_options(client: BlockingClient, server: FakeServer) -> None:
    """They are the query, as the API server reads delete options too."""
    client.delete("/nodes/n", {"propagationPolicy": "Foreground"})
    client.delete("/nodes/m")
    assert server.requests == [
        ("DELETE", "/nodes/n?propagationPolicy=Foreground", b"", None),
        ("DELETE", "/nodes/m", b"", None),
    ]


@pytest.mark.parametrize(
    ("status", "kind"), [(401, ForbiddenError), (403, ForbiddenError), (404, NotFoundError)]
)
def test_failures_are_those_of_the_client(
    client: BlockingClient, server: FakeServer, status: int, kind: type[Exception]
) -> None:
    """The request, the status and the message of the server reach the caller's thread."""
    server.replies["/api/v1/pods"] = status, b'{"message": "no"}'
    with pytest.raises(kind, match=f"GET /api/v1/pods: {status} no"):
        client.get("/api/v1/pods")


@pytest.mark.parametrize("body", [b"<html>", b'{"items": []}', b"\xff"])
def test_what_is_no_list_is_an_error(
    client: BlockingClient, server: FakeServer, body: bytes
) -> None:
    """A page without metadata does not end the list in silence."""
    server.replies["/api/v1/pods"] = 200, body
    with pytest.raises(InvalidReplyError, match="GET /api/v1/pods: not a list"):
        list(client.pages("/api/v1/pods"))


def test_a_context_names_its_user(server: FakeServer, tmp_path: Path) -> None:
    """The credentials are those of the context; a context that is not there is an error."""
    path = server.kubeconfig(tmp_path)
    with BlockingClient.connect(path, context="other", user_agent="test", seconds=60) as client:
        client.get("/api/v1/pods")
    with pytest.raises(ConfigError, match="no usable kubeconfig"):
        BlockingClient.connect(path, context="none", user_agent="test", seconds=60)


def test_a_server_that_is_gone_is_unreachable(server: FakeServer, tmp_path: Path) -> None:
    """The error names the request."""
    path = server.kubeconfig(tmp_path)
    path.write_text(path.read_text().replace(str(server.http.server_port), "1"))
    with (
        BlockingClient.connect(path, user_agent="test", seconds=60) as client,
        pytest.raises(UnreachableError, match="GET /api/v1/pods"),
    ):
        client.get("/api/v1/pods")


def test_several_threads_use_one_client(client: BlockingClient) -> None:
    """A dashboard reads in one thread and reviews tokens in others."""
    found: list[bytes] = []
    read: Callable[[], None] = lambda: found.append(client.get("/api/v1/pods"))  # noqa: E731
    threads = [threading.Thread(target=read) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert found == [PAGES[""]] * 8


@pytest.mark.parametrize("code", [101, 102, 103])
def test_an_informational_reply_is_no_success(
    client: BlockingClient, server: FakeServer, code: int
) -> None:
    """A proxy may send one before the reply; its empty body is no object."""
    server.replies["/api/v1/pods"] = code, b""
    with pytest.raises(StatusError, match=str(code)):
        client.get("/api/v1/pods")


def test_a_redirect_is_no_success(client: BlockingClient, server: FakeServer) -> None:
    """Credentials are for this server alone."""
    server.replies["/api/v1/pods"] = REDIRECTED, b"elsewhere"
    with pytest.raises(StatusError, match="307"):
        client.get("/api/v1/pods")
    assert len(server.requests) == 1


def test_a_lost_connection_is_not_tried_again(server: FakeServer, client: BlockingClient) -> None:
    """The caller decides whether a request may be sent twice."""
    server.replies["/reviews"] = -1, b""
    with pytest.raises(UnreachableError, match="POST /reviews"):
        client.post("/reviews", {})
    assert len(server.requests) == 1


def test_a_connection_is_kept(server: FakeServer, client: BlockingClient) -> None:
    """A dashboard sends a request each second."""
    for _ in range(3):
        client.get("/api/v1/pods")
    assert len(set(server.ports)) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"x"},"items":[1]}',
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"x","a":{}},"items":[]}',
        b'{"items": [{"metadata": {}}], "metadata": {"continue": "x"}}',
    ],
)
def test_the_token_is_found_wherever_the_metadata_is(body: bytes) -> None:
    """At the beginning, where the API server has it, the rest is not read for it."""
    assert _continue("/api/v1/pods", body) == "x"


def test_a_page_that_begins_as_a_list_is_not_read_to_its_end() -> None:
    """The caller decodes the objects."""
    body = b'{"kind":"List","apiVersion":"a.b/v1","metadata":{"continue":"x"},"items":[ no JSON'
    assert _continue("/api/v1/pods", body) == "x"


@pytest.mark.parametrize("length", [1 << 40, 1 << 62, 1 << 63, 1 << 80])
def test_a_reply_of_an_impossible_length_is_no_reply(tmp_path: Path, length: int) -> None:
    """As of another program at the port; urllib3 checks no Content-Length."""

    def reply_once() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n{}" % length)

    (tmp_path / "token").write_text("t")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reply_once)
        thread.start()
        host = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = BlockingClient(TokenConfig(host, None, tmp_path / "token"), {}, 10.0)
        with client, pytest.raises(UnreachableError, match=r"GET /x: (a reply|incomplete)"):
            client.get("/x")
        thread.join()
