"""A fake Prometheus with prepared results of some queries."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answers = Mapping[str, Mapping[str, str]]
"""Values by GPU UUID, by query."""
Respond = Callable[[str, Mapping[str, str]], str]
"""The body by path, such as ``query_range``, and fields of the request."""


@contextmanager
def serving(
    answers: Answers, *, status: int = 200, body: str = "", respond: Respond | None = None
) -> Iterator[str]:
    """The URL of a Prometheus; ``body`` or ``respond`` in place of what it would answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            fields = {key: values[0] for key, values in parse_qs(where.query).items()}
            name = where.path.removeprefix("/api/v1/")
            text = body or (
                respond(name, fields) if respond else _vector(answers.get(fields["query"], {}))
            )
            self.send_response(status if name in {"query", "query_range"} else 404)
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
    return result_of("vector", result)


def result_of(kind: str, result: list[dict[str, Any]]) -> str:
    """The body of a reply with some series."""
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})
