"""What is read without kubectl is what the API server reports."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from environments.objects import Objects

REQUESTS: list[str] = []


class ObjectsHandler(BaseHTTPRequestHandler):
    """Answers every question with a list of one object whose fields models would rename."""

    def do_GET(self) -> None:
        REQUESTS.append(self.path)
        if "unavailable" in self.path and len(REQUESTS) < 3:
            self.send_error(503)
            return
        body = json.dumps({"items": [{"nodeName": "n"}], "nodeName": "n"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    """Of a fake API server; a proxy of the environment would lead nowhere."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    REQUESTS.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), ObjectsHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(f"http://127.0.0.1:{server.server_port}"))
        yield Objects(kubeconfig)
        server.shutdown()


def _kubeconfig(url: str) -> str:
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
    )


@pytest.mark.slow
def test_every_look_requests_what_it_names(objects: Objects) -> None:
    """One object by its name, lists of a namespace or of all, and what a selector takes."""
    for found in (objects.node("n"), objects.pod("p", "a")):
        assert found["nodeName"] == "n"
    lists = (
        objects.nodes(),
        objects.pods("a", labels="app=b"),
        objects.events("a"),
        objects.events(fields="reason=c"),
    )
    assert all(found == [{"nodeName": "n"}] for found in lists)
    assert [path.replace("%3D", "=") for path in REQUESTS] == [
        "/api/v1/nodes/n",
        "/api/v1/namespaces/a/pods/p",
        "/api/v1/nodes",
        "/api/v1/namespaces/a/pods?labelSelector=app=b",
        "/api/v1/namespaces/a/events?fieldSelector=",
        "/api/v1/events?fieldSelector=reason=c",
    ]


@pytest.mark.slow
def test_a_read_is_repeated_where_the_api_server_is_unavailable(objects: Objects) -> None:
    """An API server whose etcd is late answers 503 or 500 for a moment."""
    assert objects.pod("unavailable", "default")["nodeName"] == "n"
    assert len(REQUESTS) == 3
