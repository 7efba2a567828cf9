"""TLS of the client: which name the certificate of the API server must have."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from gpukube.blocking import BlockingClient
from gpukube.client import HttpKubeClient
from gpukube.errors import UnreachableError
from gpukube.testing.certificates import make_certificate


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_certificate_may_be_for_another_name(tmp_path: Path, *, blocking: bool) -> None:
    """Both clients check ``tls-server-name`` in place of the host's; an empty one is none."""
    make_certificate(tmp_path, "x")  # for the address, and not for the name localhost
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    app = web.Application()
    app.router.add_get("/version", _reply)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    port = runner.addresses[0][1]
    path = tmp_path / "kubeconfig"
    try:
        for name in ("127.0.0.1", "", None):
            path.write_text(_kubeconfig(f"https://localhost:{port}", tmp_path / "tls.crt", name))
            if name:
                assert await _version(path, blocking=blocking) == b"{}"
            else:
                with pytest.raises(UnreachableError, match="Hostname mismatch"):
                    await _version(path, blocking=blocking)
    finally:
        await runner.cleanup()


async def _version(path: Path, *, blocking: bool) -> bytes:
    """The reply to a GET by the one client or by the other."""
    if blocking:
        return await asyncio.to_thread(_read, path)
    async with await HttpKubeClient.connect(path, user_agent="test") as api:
        return await api.get("/version")


def _read(path: Path) -> bytes:
    with BlockingClient.connect(path, user_agent="test", seconds=60) as api:
        return api.get("/version")


async def _reply(_: web.Request) -> web.Response:
    return web.Response(body=b"{}")


def _kubeconfig(host: str, authority: Path, name: str | None) -> str:
    cluster = {"server": host, "certificate-authority": str(authority)}
    named = {} if name is None else {"tls-server-name": name}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster | named}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    return json.dumps(document)
