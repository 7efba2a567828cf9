"""The page under a certificate: no other way in, and a new one without a restart."""

import asyncio
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from drawncluster import FakeCluster
from invoking import Run
from servedpage import SECONDS, served

from gpuinspect.web.listening import LIMITS
from gpukube.server.certificates import CertificateWatcher
from gpukube.server.connections import ConnectionGate
from gpukube.server.listening import Listener, bound

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("-newkey", "rsa:2048")


def renew(folder: Path, key: tuple[str, ...] = EC) -> None:
    """A self-signed certificate for localhost, as a Secret would be mounted."""
    new = folder / "new"
    new.mkdir(parents=True, exist_ok=True)
    named = ("-subj", "/CN=page", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(new / "tls.key"), "-out", str(new / "tls.crt"))
    command = ("openssl", "req", "-x509", *key, "-nodes", "-days", "1", *named, *files)
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    for file in ("tls.key", "tls.crt"):
        (new / file).rename(folder / file)


def trusting(folder: Path) -> ssl.SSLContext:
    """A client that trusts the certificate in the folder and no other."""
    return ssl.create_default_context(cafile=str(folder / "tls.crt"))


def get(url: str, trusted: ssl.SSLContext) -> int:
    """Status of a page."""
    with urllib.request.urlopen(url, timeout=SECONDS, context=trusted) as answer:
        return int(answer.status)


@pytest.mark.slow
def test_the_page_is_served_over_tls_alone(tmp_path: Path) -> None:
    """Who trusts the certificate sees the page; plain HTTP is not spoken on its port."""
    renew(tmp_path)
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text(FakeCluster().json())
    with served(f"--snapshot={snapshot}", f"--tls-certificates={tmp_path}") as place:
        assert get(f"https://{place}/healthz", trusting(tmp_path)) == 200
        with pytest.raises((urllib.error.URLError, OSError)):
            get(f"http://{place}/healthz", trusting(tmp_path))


def test_what_is_no_certificate_is_reported_at_once(
    run: Run, cluster: FakeCluster, tmp_path: Path
) -> None:
    """A page that was to be encrypted is never served in the clear."""
    found = run("dashboard", f"--tls-certificates={tmp_path}", on=cluster)
    assert found.code == 2
    assert "--tls-certificates" in found.err


@pytest.mark.slow
async def test_a_renewed_certificate_is_shown_without_a_restart(
    tmp_path: Path,
) -> None:
    """A broken pair changes nothing; the next good one is shown to new connections."""
    renew(tmp_path)
    watcher = CertificateWatcher(tmp_path, every=0.02)
    watcher.load()
    following = asyncio.create_task(watcher.follow())
    gate = ConnectionGate(LIMITS, asyncio.get_running_loop().time)
    sockets = await bound("127.0.0.1", 0)
    listener = Listener(gate, asyncio.Protocol, sockets, lambda: watcher.newest)
    listener.start()
    port = sockets[0].getsockname()[1]
    try:
        first = await shown(port)
        (tmp_path / "tls.key").write_text("no key")
        async with asyncio.timeout(SECONDS):
            with structlog.testing.capture_logs() as logs:
                while not [line for line in logs if line["event"] == "certificates not loaded"]:
                    assert await shown(port) == first
            assert await shown(port) == first
            renew(tmp_path, RSA)  # which a context would keep beside the first and never show
            while await shown(port) == first:
                assert not following.done()
    finally:
        following.cancel()
        await asyncio.wait({following})
        listener.close()
        await listener.wait_closed()


async def shown(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await part(None, writer)
    return found


async def part(_: object, writer: asyncio.StreamWriter) -> None:
    """End a connection, and wait for its end: what is left open fails another test."""
    writer.close()
    with suppress(OSError):  # the other end may be gone before it has closed
        await writer.wait_closed()
