"""The calls to an API server that services make, and what replies are.

:mod:`gpukube.client` makes them over HTTP, :mod:`gpukube.blocking` without an event loop.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from gpukube.errors import StatusError, failure_of

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

Body = bytes | Mapping[str, Any]
"""Encoded JSON, or an object that the client encodes."""


class KubeClient(Protocol):
    """The calls that services make; paths are absolute, bodies are JSON."""

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """GET an object or a list."""
        ...

    def get_in_chunks(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """GET a long list; its bytes as they arrive.

        Raises:
            StatusError: the server refused the request.
            UnreachableError: the connection broke, or nothing came for too long.
        """
        ...

    async def post(self, path: str, body: Body) -> bytes:
        """Create an object."""
        ...

    async def patch(self, path: str, body: Body) -> bytes:
        """Apply a JSON merge patch; ``None`` removes a field."""
        ...

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> bytes:
        """Apply a JSON patch (RFC 6902): all of its operations, or none."""
        ...

    async def delete(self, path: str) -> bytes:
        """Delete an object."""
        ...

    def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Lines of a watch as they arrive, starting with an empty list once the server accepted it.

        Raises:
            StatusError: the server refused the watch.
            UnreachableError: the connection broke, or nothing came for ``silence`` seconds.
        """
        ...


class Reply(msgspec.Struct, frozen=True):
    """A reply; names of ``headers`` are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


def encoded(body: Body) -> bytes:
    """A body as JSON."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def failure_in(request: str, reply: Reply) -> StatusError:
    """The error that a reply other than success is."""
    after = reply.headers.get("retry-after", "")
    return failure_of(request, reply.status, reply.reason, reply.body, retry_after=after)


def headers_of(user_agent: str) -> dict[str, str]:
    """Headers of every request.

    Args:
        user_agent: name of this program in the audit log of the API server.
    """
    return {
        "User-Agent": user_agent,
        "Accept": JSON,
        "Accept-Encoding": "identity",  # compressing the first lists would delay the start
    }
