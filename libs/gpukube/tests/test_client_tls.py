"""TLS of the client: which name the certificate of the API server must have."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from gpukube.blocking import BlockingClient
from gpukube.client import HttpKubeClient
from gpukube.errors import ForbiddenError, UnreachableError
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


@pytest.mark.parametrize("plain", [True, False])
async def test_a_client_certificate_that_was_renewed_is_used_after_a_401(
    tmp_path: Path, *, plain: bool
) -> None:
    """As that of kubelet, whose file is replaced before the certificate expires."""
    for name in ("server", "old", "new"):
        make_certificate(tmp_path / name, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server" / "tls.crt", tmp_path / "server" / "tls.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    for name in ("old", "new"):
        context.load_verify_locations(tmp_path / name / "tls.crt")
    valid, seen = ["old"], list[str]()

    async def reply(request: web.Request) -> web.Response:
        seen.append(_client_of(request))
        return web.Response(body=b"{}", status=200 if seen[-1] in valid else 401)

    app = web.Application()
    app.router.add_get("/version", reply)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    host = f"https://127.0.0.1:{runner.addresses[0][1]}"
    path, mine = tmp_path / "kubeconfig", tmp_path / "old"
    document = json.loads(_kubeconfig(host, tmp_path / "server" / "tls.crt", None))
    files = {"client-certificate": str(mine / "tls.crt"), "client-key": str(mine / "tls.key")}
    document["users"][0]["user"] = files if plain else files | {"as": "somebody"}
    path.write_text(json.dumps(document))
    try:
        async with await HttpKubeClient.connect(path, user_agent="test") as api:
            await api.get("/version")
            valid[:] = ["new"]
            for file in ("tls.key", "tls.crt"):
                (tmp_path / "new" / file).rename(mine / file)
            with pytest.raises(ForbiddenError):
                await api.get("/version")
            await api.get("/version")
    finally:
        await runner.cleanup()
    assert seen == ["old", "old", "new"]


def _client_of(request: web.Request) -> str:
    """The name in the certificate of the client."""
    assert request.transport is not None
    ((_, name),) = request.transport.get_extra_info("peercert")["subject"][0]
    return str(name)
