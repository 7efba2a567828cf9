"""A fake Prometheus with prepared results of some queries."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

Answers = Mapping[str, Mapping[str, str]]
"""Values by GPU UUID, by query."""


@contextmanager
def serving(answers: Answers, *, status: int = 200, body: str = "") -> Iterator[str]:
    """The URL of a Prometheus; ``body`` in place of what it would answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            found = answers.get(parse_qs(where.query)["query"][0], {})
            text = body or _vector(found)
            self.send_response(status if where.path == "/api/v1/query" else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _vector(values: Mapping[str, str]) -> str:
    result = [{"metric": {"uuid": uuid}, "value": [1.5, value]} for uuid, value in values.items()]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data})
