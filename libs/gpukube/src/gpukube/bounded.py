"""Replies of bounded size and time, from programs that are not trusted."""

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from urllib3 import BaseHTTPResponse, Timeout

from gpukube.errors import InvalidReplyError, UnreachableError

_PIECE_BYTES: Final = 64 * 1024
_LEAST_SECONDS: Final = 0.001
"""urllib3 takes no timeout of 0."""


class Bound(NamedTuple):
    """Bounds of one reply.

    Attributes:
        most_bytes: maximum size, decompressed.
        until: by ``time.monotonic``, the time at which it must be complete.
    """

    most_bytes: int
    until: float

    def options(self) -> dict[str, Any]:
        """Options of a request of urllib3 that reads no body by itself."""
        left = max(self.until - time.monotonic(), _LEAST_SECONDS)
        return {"preload_content": False, "timeout": Timeout(connect=left, read=left)}

    def read(self, request: str, reply: BaseHTTPResponse) -> bytes:
        """The body of a reply; the connection is closed where it breaks a bound.

        Raises:
            InvalidReplyError: it is too large.
            UnreachableError: it is not complete in time.
        """
        try:
            content = b"".join(self._pieces(request, reply))
        except BaseException:
            reply.close()
            raise
        return content

    def _pieces(self, request: str, reply: BaseHTTPResponse) -> Iterator[bytes]:
        size = 0
        while piece := reply.read1(_PIECE_BYTES):
            size += len(piece)
            if size > self.most_bytes:
                words = f"{request}: a reply of more than {self.most_bytes} bytes"
                raise InvalidReplyError(words)
            if time.monotonic() > self.until:
                raise UnreachableError(f"{request}: the reply is not complete in time")
            yield piece
