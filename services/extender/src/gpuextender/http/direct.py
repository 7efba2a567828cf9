"""Calls that pass the framework by, and the paths under which the extenders of 2019 had theirs.

A POST to one of these paths goes straight to its handler, because routing, dependencies and
middleware of the framework cost more than most answers. Every other request is the framework's.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from gpuextender.http.openapi import JSON

SHARE_PREFIX: Final = "/gpushare-scheduler"
PREFIXES: Final = (SHARE_PREFIX, "/gputopology-scheduler", "/gpu-scheduler-extender")


class JsonReply(msgspec.Struct, frozen=True):
    """A body of JSON and its status."""

    body: bytes
    status: int = 200


Handler = Callable[[bytes], Awaitable[JsonReply]]


class DirectRoutes:
    """An ASGI application that calls the handlers of some paths directly.

    Args:
        handlers: by path, for POST.
        behind: the application for all other requests.
    """

    def __init__(self, handlers: Mapping[str, Handler], behind: ASGIApp) -> None:
        self._handlers = handlers
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = self._handlers.get(scope.get("path", ""))
        if handler is None or scope.get("method") != "POST":
            await self._behind(scope, receive, send)
            return
        body = await _body(receive)
        if body is not None:
            await _send(send, await handler(body))


async def _body(receive: Receive) -> bytes | None:
    """The whole body; ``None`` where the client went away."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send(send: Send, reply: JsonReply) -> None:
    headers = [
        (b"content-length", str(len(reply.body)).encode()),
        (b"content-type", JSON.encode()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
