"""An API server for a machine that has none: what one plugin and ``gpushare verify`` request.

A fake, over plain HTTP on the loopback: list, watch, get, create, merge patch and delete of
objects, by their paths. It keeps no history, so a watch begins with what changes after it was
opened, and it checks nothing that a real server would check: every review allows.
"""

import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
WATCH_SECONDS = 0.5
KINDS = {"nodes", "pods", "events", "configmaps", "resourceclaims", "resourceslices"}


class FakeApi:
    """A cluster of one node; use as a context.

    Attributes:
        objects: what is there, by path.
        logs: files with the logs of pods, by the pods' paths.
        before_delete: called with the path of each object that goes.
        url: of the server.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.logs: dict[str, Path] = {}
        self.before_delete: Callable[[str], object] = lambda _: None
        self.changed = threading.Condition()
        self.ended = False
        self._changes: list[tuple[str, str, Object]] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.daemon_threads = False  # closing waits for every watch to notice that it is over
        self._server = server
        server.cluster = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def version(self) -> int:
        """Of the newest change."""
        return len(self._changes)

    def put(self, path: str, item: Object) -> Object:
        """Create or replace; the stored object, with its version."""
        with self.changed:
            kind = "MODIFIED" if path in self.objects else "ADDED"
            meta = item["metadata"] | {"resourceVersion": str(self.version + 1)}
            stored = item | {"metadata": meta}
            self.objects[path] = stored
            self._note(path, kind, stored)
            return stored

    def patch(self, path: str, patch: Object) -> Object | None:
        """Merge into an object; None if it is not there."""
        with self.changed:
            found = self.objects.get(path)
            return None if found is None else self.put(path, merged(found, patch))

    def create(self, path: str, item: Object) -> Object:
        """Put a new object with a UID; the stored object."""
        meta = {"uid": str(uuid.uuid4())} | item["metadata"]
        return self.put(path, item | {"metadata": meta})

    def delete(self, path: str) -> Object | None:
        """Remove an object and, with a namespace, all below it; None if it is not there."""
        self.before_delete(path)
        if _kind(path) == "namespaces":
            for below in [each for each in self.objects if each.startswith(f"{path}/")]:
                self.delete(below)
        with self.changed:
            gone = self.objects.pop(path, None)
            if gone is not None:
                meta = gone["metadata"] | {"resourceVersion": str(self.version + 1)}
                gone = gone | {"metadata": meta}
                self._note(path, "DELETED", gone)
            return gone

    def _note(self, path: str, kind: str, item: Object) -> None:
        self._changes.append((path, kind, item))
        self.changed.notify_all()

    def items(self, collection: str) -> list[Object]:
        """All objects of a kind (``pods``), in every namespace."""
        with self.changed:
            return [item for path, item in self.objects.items() if _kind(path) == collection]

    def after(self, version: int, collection: str) -> tuple[int, list[tuple[str, Object]]]:
        """Changes behind a version, waited for half a second, and the version they lead to."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or self.version > version, WATCH_SECONDS)
            new = self._changes[version:]
            return self.version, [(k, item) for path, k, item in new if _kind(path) == collection]

    def kubeconfig(self, folder: Path) -> Path:
        """Write a configuration that leads here."""
        path = folder / "kubeconfig.json"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": "fake"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        }
        path.write_text(json.dumps(config))
        return path


class _Handler(BaseHTTPRequestHandler):
    """One request a connection (HTTP/1.0), which spares framing."""

    @property
    def cluster(self) -> FakeApi:
        found: FakeApi = self.server.cluster  # type: ignore[attr-defined]
        return found

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        kind = url.path.rsplit("/", 1)[-1]
        if query.get("watch") in {"1", "true"}:
            self._watch(kind, int(query["resourceVersion"]))
        elif kind == "log":
            self._log(url.path.removesuffix("/log"))
        elif kind in KINDS:
            version = {"resourceVersion": str(self.cluster.version)}
            self._answer(200, {"metadata": version, "items": self.cluster.items(kind)})
        else:
            self._found(self.cluster.objects.get(url.path))

    def do_POST(self) -> None:
        item = self._body()
        if self.path.endswith("reviews"):
            self._answer(201, item | {"status": {"allowed": True}})
        else:
            path = f"{self.path}/{item['metadata']['name']}"
            self._answer(201, self.cluster.create(path, item))

    def do_PATCH(self) -> None:
        self._found(self.cluster.patch(self.path.removesuffix("/status"), self._body()))

    def do_DELETE(self) -> None:
        self._content()  # options, which it does not follow
        self._found(self.cluster.delete(urlsplit(self.path).path))

    def _body(self) -> Object:
        body: Object = json.loads(self._content())
        return body

    def _content(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _found(self, item: Object | None) -> None:
        if item is None:
            self._answer(404, {"kind": "Status", "code": 404, "message": "not found"})
        else:
            self._answer(200, item)

    def _log(self, pod: str) -> None:
        file = self.cluster.logs.get(pod)
        if file is None:
            self._found(None)
        else:
            self._send(200, "text/plain", file.read_bytes())

    def _answer(self, status: int, body: Object) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _watch(self, collection: str, version: int) -> None:
        """Until the reader goes or the server ends; a bookmark finds out about the reader."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            while not self.cluster.ended:
                version, changes = self.cluster.after(version, collection)
                for kind, item in changes:
                    line = json.dumps({"type": kind, "object": item})
                    self.wfile.write(line.encode() + b"\n")
                mark = {"kind": "Bookmark", "metadata": {"resourceVersion": str(version)}}
                self.wfile.write(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Requests are the plugin's business; its own log reports them."""


def _kind(path: str) -> str:
    return path.rsplit("/", 2)[-2]


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
