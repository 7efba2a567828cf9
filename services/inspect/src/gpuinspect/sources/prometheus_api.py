"""Requests to the HTTP API of Prometheus, bounded in size and time."""

import time
from collections.abc import Mapping
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError

from gpuinspect.errors import PrometheusError

TIMEOUT_SECONDS: Final = 10.0
MOST_BYTES: Final = 64 * 1024 * 1024
"""One number is about 30 bytes of JSON."""
QUERY: Final = "query"
QUERY_RANGE: Final = "query_range"
_MAX_TEXT: Final = 200
_CHUNK: Final = 1 << 18


def reply(
    pool: urllib3.PoolManager,
    url: str,
    fields: Mapping[str, str],
    *,
    path: str = QUERY,
    seconds: float = TIMEOUT_SECONDS,
) -> bytes:
    """The body of a reply.

    Args:
        url: of Prometheus.
        fields: of the request, such as ``query``.
        path: of the API, :data:`QUERY` or :data:`QUERY_RANGE`.
        seconds: for the whole reply.

    Raises:
        PrometheusError: there is no Prometheus at ``url``, or it refuses the query, or its reply is
            too large or too slow.
    """
    if not url.startswith(("http://", "https://")):
        raise PrometheusError(f"{url!r} is not the URL of a Prometheus: use http:// or https://")
    until = time.monotonic() + seconds
    address = f"{url.rstrip('/')}/api/v1/{path}"
    try:
        answer = pool.request("GET", address, fields=dict(fields), preload_content=False)
        body = _read(answer, url, until)
    except HTTPError as error:
        raise PrometheusError(f"Prometheus at {url} does not respond: {error}") from error
    if answer.status != 200:
        text = body[:_MAX_TEXT].decode(errors="replace")
        raise PrometheusError(f"Prometheus at {url} answers {answer.status}: {text}")
    return body


def _read(answer: urllib3.BaseHTTPResponse, url: str, until: float) -> bytes:
    """The body; a server that sends it byte by byte does not hold the command."""
    parts, size = [], 0
    try:
        while chunk := answer.read(_CHUNK, decode_content=True):
            parts.append(chunk)
            size += len(chunk)
            if size > MOST_BYTES:
                raise PrometheusError(f"Prometheus at {url} answers more than {MOST_BYTES} bytes")
            if time.monotonic() > until:
                raise PrometheusError(f"Prometheus at {url} does not respond in time")
    finally:
        answer.close()
    return b"".join(parts)
