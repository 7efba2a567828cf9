"""Certificates of a listener: waited for when it starts, and read again when their files change.

A mounted Secret may be filled after the pod started, and is renewed while it runs. A new
certificate holds for connections made after it was read; those that stand are left alone.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gpuextender import metrics
from gpuextender.expiry import ExpiryError, not_after

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

log = structlog.get_logger(__name__)


class Certificates(msgspec.Struct, frozen=True):
    """What a listener shows, and whom it believes.

    Attributes:
        folder: with ``tls.crt`` and ``tls.key``.
        clients: authority whose certificate a client must show; none is asked for without.
        every: seconds between looks at the files; a mounted Secret changes by a swapped link,
            which no watch of the file itself would notice.
    """

    folder: Path
    clients: Path | None = None
    every: float = 10.0

    @property
    def chain(self) -> tuple[Path, Path]:
        """Certificate and key."""
        return self.folder / CERTIFICATE, self.folder / KEY

    def present(self) -> bool:
        """Whether every file is there."""
        return all(file.exists() for file in (*self.chain, *filter(None, (self.clients,))))

    def context(self) -> ssl.SSLContext:
        """For a server, from what the files hold now.

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
        """When each file was written, in nanoseconds; 0 for one that is not there."""
        files = (*self.chain, *filter(None, (self.clients,)))
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    async def follow(self, context: ssl.SSLContext, known: tuple[int, ...]) -> None:
        """Read everything again whenever a file changed, for ever; what is broken is not taken.

        Args:
            known: :meth:`stamps` from before ``context`` was made, so that a change since is seen.
        """
        self._note_expiry()
        while True:
            await asyncio.sleep(self.every)
            found = self.stamps()
            if found == known:
                continue
            try:
                context.sni_callback = _giving(self.context())
            except (ssl.SSLError, OSError) as error:
                log.warning("certificates not taken", folder=str(self.folder), error=str(error))
                continue
            known = found
            self._note_expiry()
            log.info("certificates taken", folder=str(self.folder))

    def _note_expiry(self) -> None:
        """Tell the metrics when the certificate ends; one that cannot be read says nothing."""
        try:
            ends = not_after((self.folder / CERTIFICATE).read_text())
        except (ExpiryError, OSError) as error:
            log.warning("no date in the certificate", folder=str(self.folder), error=str(error))
            return
        metrics.CERTIFICATE_EXPIRY.labels(str(self.folder)).set(ends)


def _giving(newest: ssl.SSLContext) -> Callable[[ssl.SSLObject, str, ssl.SSLContext], None]:
    """Has each connection use the newest context.

    A context that is given another pair keeps the old one where its key is of another kind, and
    loses it where the new one is broken: it is never changed itself.
    """

    def give(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = newest

    return give
