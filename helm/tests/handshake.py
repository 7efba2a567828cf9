"""Certificates as the Job of the chart issues them, and TLS handshakes with them in memory."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from charting import Object, Rendered

from gpukube.issuing.__main__ import parser, plan_of
from gpukube.issuing.secrets import CertificateIssuer


class RenderedObjects:
    """The objects of the chart as an API server holds them, for a single client.

    Attributes:
        written: paths that were patched; nothing else can be written.
        read: paths of objects that were read.
    """

    def __init__(self, rendered: Rendered) -> None:
        self.written: list[str] = []
        self.read: list[str] = []
        self._objects = {
            f"/{item['kind']}/{item['metadata']['name']}".lower(): item
            for kind in ("Secret", "MutatingWebhookConfiguration")
            for item in rendered.of(kind)
        }

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """An object of the chart, which no Job may create."""
        assert params is None
        self.read.append(path)
        found = self._of(path)
        metadata = {**found["metadata"], "resourceVersion": "1"}
        return json.dumps({**found, "metadata": metadata}).encode()

    async def patch(self, path: str, body: Any) -> bytes:
        """Merge the fields that the Job writes."""
        self.written.append(path)
        found, changes = self._of(path), dict(body)
        del changes["metadata"]
        if "data" in changes:
            changes["data"] = found.get("data", {}) | changes["data"]
        found.update(changes)
        return b""

    def _of(self, path: str) -> Object:
        plural, name = path.rsplit("/", 2)[1:]
        return self._objects[f"/{plural.removesuffix('s')}/{name}"]


def issue(rendered: Rendered) -> RenderedObjects:
    """Run the Job of the chart; its Secrets and webhook configuration are filled in place."""
    found = RenderedObjects(rendered)
    (job,) = rendered.of("Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python3", "-m", "gpukube.issuing"]
    plan = plan_of(parser().parse_args(container["args"]))
    client: Any = found
    asyncio.run(CertificateIssuer(client, plan, datetime.now(UTC)).renew())
    return found


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, *, host: str) -> None:
    """Let the two agree; raises what a real handshake would."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting


def laid_out(rendered: Rendered, secret: str, folder: Path) -> Path:
    """The files of a secret that the Job has filled, as a pod or a person has them."""
    if "data" not in rendered.one("Secret", secret):
        issue(rendered)
    folder.mkdir()
    for name, text in rendered.one("Secret", secret)["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
    return folder


def filled(secret: str) -> Object:
    """A volume's Secret with each key that the Job writes: the pod waits until all are there."""
    keys = ("ca.crt", "tls.crt", "tls.key")
    return {"secretName": secret, "items": [{"key": key, "path": key} for key in keys]}
