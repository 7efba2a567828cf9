"""A server that answers every request, also those to a proxy, and keeps their headers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class RecordingServer:
    """Replies 200 to everything; a request for a tunnel gets a 502.

    Attributes:
        seen: target and headers of each request; names in lower case.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[tuple[str, str]]]] = []
        seen = self.seen

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self) -> None:
                found = [(name.lower(), value) for name, value in self.headers.items()]
                seen.append((self.path, found))
                self.send_response(502 if self.command == "CONNECT" else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            # The names of the standard library.
            do_GET = do_CONNECT = reply  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Tests print enough."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_port

    def headers(self, prefix: str) -> list[tuple[str, str]]:
        """Those of the last request whose name starts so, in order."""
        return sorted(pair for pair in self.seen[-1][1] if pair[0].startswith(prefix))


@contextmanager
def recording() -> Iterator[RecordingServer]:
    """A server in a thread."""
    server = RecordingServer()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join(60)
        server.http.server_close()
