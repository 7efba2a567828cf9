"""The certificate of the metrics endpoint: waited for at start, read again when its files change.

A mounted Secret is renewed by a swapped link while the process runs. A new certificate holds for
connections made after it was read. It vouches for this end alone: nobody is asked for one.
"""

import asyncio
import ssl
from pathlib import Path

import msgspec
import structlog

log = structlog.get_logger()


class Certificates(msgspec.Struct, frozen=True):
    """What the endpoint shows.

    Attributes:
        folder: with ``tls.crt`` and ``tls.key``.
        every: seconds between looks at the files.
    """

    folder: Path
    every: float = 10.0

    async def context(self) -> ssl.SSLContext:
        """For a server; returns once there is a certificate that can be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        while not self._taken(context):  # noqa: ASYNC110 - files have no event
            await asyncio.sleep(self.every)
        return context

    async def follow(self, context: ssl.SSLContext) -> None:
        """Take what is new, for ever; what cannot be used is not taken."""
        known = self._stamps()
        while True:
            await asyncio.sleep(self.every)
            found = self._stamps()
            if found != known and self._taken(context):
                known = found
                log.info("certificates taken", folder=str(self.folder))

    def _taken(self, context: ssl.SSLContext) -> bool:
        try:
            # A context that takes a broken pair has lost the good one: tried on another first.
            for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
                each.load_cert_chain(*self._files)
        except (ssl.SSLError, OSError) as error:
            log.warning("certificates not taken", folder=str(self.folder), error=str(error))
            return False
        return True

    @property
    def _files(self) -> tuple[Path, Path]:
        return self.folder / "tls.crt", self.folder / "tls.key"

    def _stamps(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in self._files)
