"""An API server for readers, over real HTTP: lists in pages, refusals, nothing else."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from jsonpatches import PatchError, patched

TOKEN = "a-token"


class FakeApiServer:
    """Serves lists of objects by path, ``page`` at a time, to clients with the token.

    Attributes:
        objects: single objects by path.
        statuses: path to the HTTP status to answer with instead.
        requests: paths with their queries, as they came.
        impersonated: users that requests were made as.
        reviews: answers to reviews by path; ``bodies`` are the reviews that came.
    """

    def __init__(self, lists: Mapping[str, list[dict[str, Any]]], *, page: int = 2) -> None:
        self.lists = dict(lists)
        self.page = page
        self.objects: dict[str, dict[str, Any]] = {}
        self.statuses: dict[str, int] = {}
        self.requests: list[str] = []
        self.impersonated: list[str] = []
        self.reviews: dict[str, dict[str, Any]] = {}
        self.bodies: list[dict[str, Any]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @contextmanager
    def serving(self) -> Iterator["FakeApiServer"]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join(60)
            self._http.server_close()

    def kubeconfig(self, folder: Path) -> Path:
        """A file with credentials for it."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "it", "user": "me"}},
                {"name": "stranger", "context": {"cluster": "it", "user": "nobody"}},
            ],
            "clusters": [{"name": "it", "cluster": {"server": self.url}}],
            "users": [
                {"name": "me", "user": {"token": TOKEN}},
                {"name": "nobody", "user": {"token": "wrong"}},
            ],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def answer(self, target: str, *, authorized: bool) -> tuple[int, dict[str, Any] | str]:
        """Status and body of one GET."""
        self.requests.append(target)
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if not authorized:
            return 401, {"message": "Unauthorized"}
        if path in self.objects:
            return 200, self.objects[path]
        status = self.statuses.get(path, 200 if path in self.lists else 404)
        if status != 200:
            return status, {"message": "the fake refuses"}
        start = int(query.get("continue", ["0"])[0])
        end = start + self.page
        more = {"continue": str(end)} if end < len(self.lists[path]) else {}
        return 200, {"metadata": more, "items": self.lists[path][start:end]}

    def posted(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of one POST: a review of ``reviews``."""
        self.bodies.append(body)
        review = self.reviews.get(path)
        return (404, {}) if review is None else (201, review)

    def patched(self, path: str, operations: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        """Apply a JSON patch to the listed object at this path; 422 where a test of it fails."""
        for listed in self.lists.values():
            for number, item in enumerate(listed):
                if item.get("selfLink") == path:
                    try:
                        listed[number] = patched(item, operations)
                    except PatchError:
                        return 422, {"message": "the patch does not apply"}
                    return 200, listed[number]
        return 404, {}

    def deleted(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of one DELETE; this server has nothing that may be deleted."""
        return 404, {"message": f"{path} not found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authorized = self.headers["Authorization"] == f"Bearer {TOKEN}"
                user = self.headers["Impersonate-User"]
                server.impersonated += [user] if user else []
                self.reply(*server.answer(self.path, authorized=authorized))

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(*server.posted(self.path, json.loads(text)))

            def do_DELETE(self) -> None:
                self.reply(*server.deleted(urlsplit(self.path).path))

            def do_PATCH(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json-patch+json"
                self.reply(*server.patched(self.path, json.loads(text)))

            def reply(self, status: int, document: dict[str, Any] | str) -> None:
                text = document if isinstance(document, str) else json.dumps(document)
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Tests print enough."""

        return Handler
