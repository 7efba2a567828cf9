"""Stands in for the DRA driver of another vendor: it prepares every claim and does nothing else.

It runs in the image of our plugin, which has gRPC. DRIVER is its name; its ResourceSlice is created
beside it.
"""

import os
import signal
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from standins.wireformat import fields, message

KUBELET = Path("/var/lib/kubelet")
SERVICE = "v1.DRAPlugin"
# Numbers of fields, by message.
TYPE, NAME, ENDPOINT, VERSIONS = 1, 2, 3, 4  # PluginInfo
CLAIMS = 1  # requests and responses
UID = 2  # Claim
KEY, VALUE = 1, 2  # an entry of a map

Context = Any


def answered(request: bytes, _context: Context) -> bytes:
    """Every claim, without a device of CDI and without an error."""
    uids = [
        value.decode()
        for number, claim in fields(request)
        if number == CLAIMS
        for part, value in fields(claim)
        if part == UID
    ]
    return message(*((CLAIMS, message((KEY, uid), (VALUE, b""))) for uid in uids))


def noted(_request: bytes, _context: Context) -> bytes:
    """What kubelet reports about the registration."""
    return b""


def main() -> None:
    """Serve and register, until the pod is deleted."""
    driver = os.environ["DRIVER"]
    folder = KUBELET / "plugins" / driver
    folder.mkdir(parents=True, exist_ok=True)
    endpoint, registry = folder / "dra.sock", KUBELET / "plugins_registry" / f"{driver}-reg.sock"
    unary: Callable[..., Any] = grpc.unary_unary_rpc_method_handler
    info = message((TYPE, "DRAPlugin"), (NAME, driver), (ENDPOINT, str(endpoint)))
    info += message((VERSIONS, SERVICE))
    calls = {
        f"k8s.io.kubelet.pkg.apis.dra.{SERVICE}": {
            "NodePrepareResources": unary(answered),
            "NodeUnprepareResources": unary(answered),
        },
        "pluginregistration.Registration": {
            "GetInfo": unary(lambda _request, _context: info),
            "NotifyRegistrationStatus": unary(noted),
        },
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    for service, handlers in calls.items():
        handler = grpc.method_handlers_generic_handler(service, handlers)
        server.add_generic_rpc_handlers((handler,))
    for path in (endpoint, registry):
        path.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{path}")
    server.start()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ended.wait()
    for path in (registry, endpoint):  # kubelet forgets a driver whose socket is gone
        path.unlink(missing_ok=True)
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main()
