"""A watcher of the certificate of a listener: read again when its files change.

A mounted Secret may be filled after the pod started and is renewed while it runs. A new certificate
is used for connections that are made after it was read; existing ones are left alone.
"""

import asyncio
import ssl
from collections.abc import Callable
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
    """

    def __init__(self, folder: Path, clients: Path | None = None, every: float = 10.0) -> None:
        self.folder, self.clients, self.every = folder, clients, every

    @property
    def chain(self) -> tuple[Path, Path]:
        """Certificate and key."""
        return self.folder / CERTIFICATE, self.folder / KEY

    def present(self) -> bool:
        """Whether every file exists."""
        return all(file.exists() for file in self._files)

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
        """When each file was written, in nanoseconds; 0 for a missing one."""
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in self._files)

    def loaded(self) -> None:
        """Called when a watch begins and after each new certificate; does nothing here."""

    async def wait_for_context(self) -> tuple[ssl.SSLContext, tuple[int, ...]]:
        """Wait until the files can be used; the context, and the stamps to follow it from."""
        while True:
            known = self.stamps()  # first: what is renewed from here on is new
            if (context := self._usable()) is not None:
                return context, known
            await asyncio.sleep(self.every)

    async def follow(self, context: ssl.SSLContext, known: tuple[int, ...]) -> None:
        """Use each new certificate, until cancelled; one that cannot be used changes nothing.

        Args:
            context: of the listener; its new connections get the newest certificate.
            known: :meth:`stamps` from before ``context`` was made, so that a change since is seen.
        """
        self.loaded()
        while True:
            await asyncio.sleep(self.every)
            found = self.stamps()
            if found != known and (newest := self._usable()) is not None:
                context.sni_callback = _using(newest)
                known = found
                self.loaded()
                log.info("certificates taken", folder=str(self.folder))

    @property
    def _files(self) -> tuple[Path, ...]:
        return self.chain if self.clients is None else (*self.chain, self.clients)

    def _usable(self) -> ssl.SSLContext | None:
        try:
            return self.context()
        except OSError as error:
            log.warning("certificates not loaded", folder=str(self.folder), error=str(error))
            return None


def _using(newest: ssl.SSLContext) -> Callable[[ssl.SSLObject, str, ssl.SSLContext], None]:
    """Make each connection use the newest context.

    A context that loads another pair keeps the old one where its key is of another kind, and loses
    it where the new one is broken: it is never changed itself.
    """

    def use(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = newest

    return use


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
