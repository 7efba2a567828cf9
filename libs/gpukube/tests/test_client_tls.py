"""TLS of the client: the name in the API server's certificate, and the certificate of the user."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpukube.blocking import BlockingClient
from gpukube.client import HttpKubeClient
from gpukube.errors import ForbiddenError, UnreachableError
from gpukube.testing.certificates import make_certificate

VERSION = "client.authentication.k8s.io/v1"


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_certificate_may_be_for_another_name(tmp_path: Path, *, blocking: bool) -> None:
    """Both clients check ``tls-server-name`` in place of the host's; an empty one is none."""
    make_certificate(tmp_path, "x")  # for the address, and not for the name localhost
    path = tmp_path / "kubeconfig"
    async with _serving(tmp_path) as port:
        for name in ("127.0.0.1", "", None):
            named = {} if name is None else {"tls-server-name": name}
            path.write_text(_kubeconfig(f"https://localhost:{port}", tmp_path, named, {}))
            if name:
                assert await _version(path, blocking=blocking) == b"{}"
            else:
                with pytest.raises(UnreachableError, match="Hostname mismatch"):
                    await _version(path, blocking=blocking)


async def test_a_stream_checks_the_same_name(tmp_path: Path) -> None:
    """As a whole reply does."""
    make_certificate(tmp_path, "x")
    path = tmp_path / "kubeconfig"
    async with _serving(tmp_path) as port:
        named = {"tls-server-name": "127.0.0.1"}
        path.write_text(_kubeconfig(f"https://localhost:{port}", tmp_path, named, {}))
        async with await HttpKubeClient.connect(path, user_agent="test") as api:
            read = [chunk async for chunk in api.get_in_chunks("/version", params={})]
    assert b"".join(read) == b"{}"


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("source", ["files", "plugin"])
async def test_the_users_certificate_is_shown(
    tmp_path: Path, source: str, *, blocking: bool
) -> None:
    """Of the kubeconfig, or of a credential plugin, to a server that requires one."""
    make_certificate(tmp_path, "x")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    user: dict[str, Any] = {"client-certificate": str(certificate), "client-key": str(key)}
    if source == "plugin":
        status = {
            "clientCertificateData": certificate.read_text(),
            "clientKeyData": key.read_text(),
        }
        found = {"apiVersion": VERSION, "kind": "ExecCredential", "status": status}
        (tmp_path / "printed").write_text(json.dumps(found))
        run = {"command": "cat", "args": [str(tmp_path / "printed")]}
        user = {"exec": run | {"apiVersion": VERSION, "interactiveMode": "Never"}}
    path = tmp_path / "kubeconfig"
    async with _serving(tmp_path, clients=True) as port:
        address = f"https://127.0.0.1:{port}"
        path.write_text(_kubeconfig(address, tmp_path, {}, user))
        assert await _version(path, blocking=blocking) == b"{}"
        path.write_text(_kubeconfig(address, tmp_path, {}, {}))
        with pytest.raises(UnreachableError):
            await _version(path, blocking=blocking)


@asynccontextmanager
async def _serving(folder: Path, *, clients: bool = False) -> AsyncIterator[int]:
    """A server with the certificate of the folder; its port.

    Args:
        clients: whether a client needs that certificate too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "tls.crt")
    app = web.Application()
    app.router.add_get("/version", _reply)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
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


def _kubeconfig(host: str, folder: Path, cluster: Mapping[str, str], user: dict[str, Any]) -> str:
    trusted = {"server": host, "certificate-authority": str(folder / "tls.crt")}
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {**trusted, **cluster}}],
        "users": [{"name": "u", "user": user}],
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
    user = {"client-certificate": str(mine / "tls.crt"), "client-key": str(mine / "tls.key")}
    other = {} if plain else {"as": "somebody"}
    path.write_text(_kubeconfig(host, tmp_path / "server", {}, user | other))
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
