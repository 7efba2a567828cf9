"""A watcher of the certificate of a listener: read again when its files change.

A mounted Secret may be filled after the pod started and is renewed while it runs. A new certificate
is used for connections that are made after it was read; existing ones are left alone.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

log = structlog.get_logger(__name__)


class CertificateWatcher:
    """The certificate of a listener, and the authority of its clients.

    Attributes:
        folder: with ``tls.crt`` and ``tls.key``.
        clients: CA bundle that verifies client certificates; None requests none.
        every: seconds between looks at the files; a mounted Secret changes by a swapped link,
            which no watch of the file itself would notice.
        newest: what new connections use. Each certificate has a context of its own: a context that
            loads another pair keeps the old one where its key is of another kind, and a client that
            resumes a TLS session is not verified again, which only the same context permits.
    """

    def __init__(self, folder: Path, clients: Path | None = None, every: float = 10.0) -> None:
        self.folder, self.clients, self.every = folder, clients, every
        self.newest: ssl.SSLContext | None = None
        self._known: tuple[int, ...] = ()

    @property
    def chain(self) -> tuple[Path, Path]:
        """Certificate and key."""
        return self.folder / CERTIFICATE, self.folder / KEY

    def context(self) -> ssl.SSLContext:
        """A server context of the current files.

        Raises:
            OSError: a file cannot be read, or (``ssl.SSLError``) they do not fit.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.chain)
        if self.clients is not None:
            context.load_verify_locations(self.clients)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def stamps(self) -> tuple[int, ...]:
        """When each file was written, in nanoseconds; 0 for one that is missing or unreadable."""
        files = self.chain if self.clients is None else (*self.chain, self.clients)
        return tuple(map(_written, files))

    def loaded(self) -> None:
        """Called when a watch begins and after each new certificate; does nothing here."""

    def load(self) -> ssl.SSLContext:
        """Use the current files.

        Raises:
            OSError: as :meth:`context`.
        """
        known = self.stamps()  # first: what is renewed from here on is new
        self.newest = self.context()
        self._known = known
        return self.newest

    async def wait_for_context(self) -> None:
        """Wait until the files can be used."""
        while True:
            if self._usable():
                return
            await asyncio.sleep(self.every)

    async def follow(self) -> None:
        """Use each new certificate, until cancelled; one that cannot be used changes nothing."""
        self.loaded()
        while True:
            await asyncio.sleep(self.every)
            if self.stamps() != self._known and self._usable():
                self.loaded()
                log.info("certificates taken", folder=str(self.folder))

    def _usable(self) -> bool:
        try:
            self.load()
        except OSError as error:
            log.warning("certificates not loaded", folder=str(self.folder), error=str(error))
            return False
        return True


def _written(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


class ExpiryError(ValueError):
    """The file has no readable certificate."""


def not_after(pem: str) -> float:
    """Unix seconds at which the first certificate of ``pem``, the listener's own, ends.

    The standard library reports the expiry only of a peer's certificate, never of a local one.
    Nothing is verified here. The import of the library takes 0.2 s and 10 MiB: it waits for the
    first certificate, so that the first lists are requested before.

    Raises:
        ExpiryError: there is none, or it is cut off.
    """
    from cryptography import x509  # noqa: PLC0415 - see above

    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise ExpiryError(f"not a certificate: {error}") from error
