"""Metrics and health over TLS: only under a certificate, and always under the newest good one."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import structlog

from gpudeviceplugin.web import Web
from gpukube.server.certificates import CertificateWatcher

pytestmark = pytest.mark.slow

SECONDS = 60.0

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("-newkey", "rsa:2048")


def renew(folder: Path, key: tuple[str, ...] = EC) -> None:
    """A self-signed certificate for localhost, as a Secret would be mounted."""
    new = folder / "new"
    new.mkdir(parents=True, exist_ok=True)
    named = ("-subj", "/CN=plugin", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(new / "tls.key"), "-out", str(new / "tls.crt"))
    command = ("openssl", "req", "-x509", *key, "-nodes", "-days", "1", *named, *files)
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    for file in ("tls.key", "tls.crt"):
        (new / file).rename(folder / file)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[int]:
    """The endpoint over TLS, followed; its port."""
    web = Web(lambda: "", CertificateWatcher(folder, every=0.02))
    async with asyncio.timeout(SECONDS):
        port = await web.start("127.0.0.1", 0)
    following = asyncio.create_task(web.follow())
    try:
        yield port
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await web.stop()


def trusting(folder: Path) -> ssl.SSLContext:
    """A client that trusts the certificate in the folder and no other."""
    return ssl.create_default_context(cafile=str(folder / "tls.crt"))


def anybody() -> ssl.SSLContext:
    """A client that verifies no certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def shown(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anybody())
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with suppress(OSError):  # the other end may be gone before it has closed
        await writer.wait_closed()
    return found


async def answer(url: str, trusted: ssl.SSLContext) -> str:
    """The text of a page."""
    async with httpx2.AsyncClient(verify=trusted, trust_env=False) as client:
        return (await client.get(url)).text


async def test_it_is_served_over_tls_alone(tmp_path: Path) -> None:
    """Who trusts the certificate reads metrics and health; plain HTTP is not spoken."""
    renew(tmp_path)
    async with serving(tmp_path) as port:
        place = f"127.0.0.1:{port}"
        assert await answer(f"https://{place}/healthz", trusting(tmp_path)) == "ok\n"
        assert "# TYPE" in await answer(f"https://{place}/metrics", trusting(tmp_path))
        with pytest.raises(httpx2.TransportError):
            await answer(f"http://{place}/healthz", trusting(tmp_path))


async def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    """A broken pair changes nothing; the next good one is shown to new connections."""
    renew(tmp_path)
    async with serving(tmp_path) as port:
        first = await shown(port)
        with structlog.testing.capture_logs() as logged:
            (tmp_path / "tls.key").write_text("no key")
            async with asyncio.timeout(SECONDS):
                while not any(line["event"] == "certificates not loaded" for line in logged):
                    assert await shown(port) == first
        assert await shown(port) == first
        renew(tmp_path, RSA)  # which a context would keep beside the first and never show
        async with asyncio.timeout(SECONDS):
            while await shown(port) == first:
                assert await answer(f"https://127.0.0.1:{port}/healthz", anybody()) == "ok\n"


async def test_a_certificate_that_changes_before_it_is_followed_is_shown(tmp_path: Path) -> None:
    """What is renewed between the first reading and the first look is no less new."""
    renew(tmp_path)
    web = Web(lambda: "", CertificateWatcher(tmp_path, every=0.02))
    async with asyncio.timeout(SECONDS):
        port = await web.start("127.0.0.1", 0)
    first = await shown(port)
    renew(tmp_path)
    following = asyncio.create_task(web.follow())
    try:
        async with asyncio.timeout(SECONDS):
            while await shown(port) == first:
                assert not following.done()
    finally:
        following.cancel()
        await asyncio.wait({following})
        await web.stop()


async def test_it_waits_for_a_certificate(tmp_path: Path) -> None:
    """A Secret may be filled after the pod started: nothing is served in the clear meanwhile."""
    web = Web(lambda: "", CertificateWatcher(tmp_path / "late", every=0.02))
    starting = asyncio.create_task(web.start("127.0.0.1", 0))
    try:
        assert (await asyncio.wait({starting}, timeout=0.1))[1] == {starting}
        renew(tmp_path / "late")
        async with asyncio.timeout(SECONDS):
            assert await starting > 0
    finally:
        starting.cancel()
        await web.stop()


async def test_a_handshake_that_stalls_delays_no_end(tmp_path: Path) -> None:
    """The node has no plugin until the one that ends is gone and its successor starts."""
    renew(tmp_path)
    web = Web(lambda: "", CertificateWatcher(tmp_path))
    port = await web.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(SECONDS):
        while not len(web.gate):  # noqa: ASYNC110 - the listener has no event for it
            await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        await web.stop()
    writer.close()
