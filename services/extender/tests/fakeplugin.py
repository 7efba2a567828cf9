"""A device plugin whose documents the API server fetches: its pod, and the server behind it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from chartconfig import SPACE

from gpukube.testing.plugin_pods import plugin_pod

Object = dict[str, Any]
SECONDS: Final = 60


class PluginServer(NamedTuple):
    """A server of documents.

    Attributes:
        address: of this machine; the API server connects to no loopback address.
    """

    address: str
    port: int

    def pod(self, node: str) -> Object:
        """The pod of the plugin, to create."""
        item = plugin_pod("plugin", node, namespace=SPACE, port=self.port)
        item["spec"]["containers"][0]["image"] = "none"
        return item

    def status(self) -> Object:
        """What kubelet would write into the pod."""
        addresses = {"podIP": self.address, "podIPs": [{"ip": self.address}]}
        return {"status": {"phase": "Running", **addresses}}


@contextmanager
def serving(documents: Mapping[str, Callable[[], Object]]) -> Iterator[PluginServer]:
    """Serve documents by path, such as ``/usage``, each made anew for a request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            make = documents.get(self.path)
            body = json.dumps(make() if make else {}).encode()
            self.send_response(200 if make else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Tests print enough."""

    server = ThreadingHTTPServer((_address(), 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield PluginServer(_address(), server.server_port)
    finally:
        server.shutdown()
        thread.join(SECONDS)
        server.server_close()


def _address() -> str:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 9))
        return str(one.getsockname()[0])
