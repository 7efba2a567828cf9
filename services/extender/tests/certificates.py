"""Certificates as a Secret would hold them, and what a listener shows."""

import asyncio
import ssl
import subprocess
from pathlib import Path

from gpukube.testing.certificates import EC, RSA, make_certificate

__all__ = ["EC", "RSA", "make_certificate", "no_questions", "shown", "trusting"]


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
