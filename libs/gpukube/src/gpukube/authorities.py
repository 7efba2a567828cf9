"""Imports libraries without the public certificate authorities of the system.

aiohttp reads all of them when it is imported, 1.6 MiB, into TLS contexts for requests that have
none. Requests of this package have a context of their own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "SSL_CERT_FILE"


@contextmanager
def no_public_authorities() -> Iterator[None]:
    """Let OpenSSL find an empty file of authorities meanwhile; for imports at the start only."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
