"""The certificate that the page is shown under, read again when its files change.

A mounted Secret is renewed by a swapped link while the page is served. A new certificate holds for
connections made after it was read. It vouches for the page alone: viewers show a token, no
certificate.
"""

import asyncio
import ssl
import sys
from collections.abc import Callable
from pathlib import Path


class Certificates:
    """A pair of files and the context made of it.

    Args:
        folder: with ``tls.crt`` and ``tls.key``.
        every: seconds between looks at the files.

    Attributes:
        context: for a server; its connections are shown the newest pair that fits.

    Raises:
        OSError: there are no such files, or (``ssl.SSLError``) they are no pair.
    """

    def __init__(self, folder: Path, *, every: float = 10.0) -> None:
        self._files = folder / "tls.crt", folder / "tls.key"
        self._every = every
        self._known = self._stamps()
        self.context = self._read()

    async def follow(self) -> None:
        """Take what is new, for ever; what cannot be used is not taken."""
        while True:
            await asyncio.sleep(self._every)
            found = self._stamps()
            if found != self._known and self._taken():
                self._known = found

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._files)
        return context

    def _taken(self) -> bool:
        try:
            self.context.sni_callback = _giving(self._read())
        except OSError as error:
            print(f"certificates not taken: {error}", file=sys.stderr)
            return False
        return True

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
