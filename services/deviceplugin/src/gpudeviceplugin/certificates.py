"""The certificate of the metrics endpoint: waited for at start, read again when its files change.

A mounted Secret is renewed by a swapped link while the process runs. A new certificate holds for
connections made after it was read. It vouches for this end alone: nobody is asked for one.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger()


class Certificates:
    """What the endpoint shows.

    Args:
        folder: with ``tls.crt`` and ``tls.key``.
        every: seconds between looks at the files.
    """

    def __init__(self, folder: Path, *, every: float = 10.0) -> None:
        self._folder = folder
        self._every = every
        self._known: tuple[int, ...] = ()

    async def context(self) -> ssl.SSLContext:
        """For a server; returns once there is a certificate that can be used."""
        while True:
            self._known = self._stamps()  # first: what is renewed from here on is new
            if (context := self._read()) is not None:
                return context
            await asyncio.sleep(self._every)

    async def follow(self, context: ssl.SSLContext) -> None:
        """Take what is new since it was read, for ever; what cannot be used is not taken."""
        while True:
            await asyncio.sleep(self._every)
            found = self._stamps()
            if found != self._known and (newest := self._read()) is not None:
                context.sni_callback = _giving(newest)
                self._known = found
                log.info("certificates taken", folder=str(self._folder))

    def _read(self) -> ssl.SSLContext | None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(*self._files)
        except OSError as error:
            log.warning("certificates not taken", folder=str(self._folder), error=str(error))
            return None
        return context

    @property
    def _files(self) -> tuple[Path, Path]:
        return self._folder / "tls.crt", self._folder / "tls.key"

    def _stamps(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in self._files)


def _giving(newest: ssl.SSLContext) -> Callable[[ssl.SSLObject, str, ssl.SSLContext], None]:
    """Has each connection use the newest context.

    A context that is given another pair keeps the old one where its key is of another kind, and
    loses it where the new one is broken: it is never changed itself.
    """

    def give(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = newest

    return give
