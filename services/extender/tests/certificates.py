"""Certificates as a Secret would hold them, and what a listener shows."""

import asyncio
import ssl
import subprocess
from pathlib import Path

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
RSA = ("-newkey", "rsa:2048")


def make_certificate(folder: Path, name: str, key: tuple[str, ...] = EC) -> None:
    """A self-signed certificate for localhost, as a Secret would be mounted."""
    folder.mkdir(exist_ok=True)
    new = folder / "new"
    new.mkdir(exist_ok=True)
    subprocess.run(
        (
            *("openssl", "req", "-x509", *key, "-nodes", "-days", "1", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(new / "tls.key"), "-out", str(new / "tls.crt")),
        ),
        check=True,
        capture_output=True,
        timeout=60,
    )
    for file in ("tls.key", "tls.crt"):
        (new / file).rename(folder / file)


def sign(authority: Path, folder: Path, name: str, *flags: str) -> None:
    """A certificate of that name by the authority whose pair is in ``authority``."""
    folder.mkdir(exist_ok=True)
    signed = ("-CA", str(authority / "tls.crt"), "-CAkey", str(authority / "tls.key"))
    files = ("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"))
    subject = ("-nodes", "-days", "1", "-subj", f"/O=team/CN={name}")
    command = ("openssl", "req", "-x509", *EC, *subject, *signed, *files, *flags)
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def trusting(folder: Path) -> ssl.SSLContext:
    """A client that believes the certificate in ``folder`` and no other."""
    return ssl.create_default_context(cafile=str(folder / "tls.crt"))


def no_questions() -> ssl.SSLContext:
    """A client that believes everybody."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def shown(port: int) -> bytes:
    """The certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=no_questions())
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()  # nobody waits for a farewell, and none is left to the collector
    await writer.wait_closed()
    return certificate
