"""Handlers of frequent requests, called without a framework; for services that have starlette.

A POST to one of their paths goes straight to its handler, because routing, dependencies and
middleware of the framework cost more than most answers. Every other request is the framework's.
The same handlers are mounted there too: for the OpenAPI document, and for requests that are traced.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

JSON: Final = "application/json"


class HttpReply(msgspec.Struct, frozen=True):
    """A body, its status and its type."""

    body: bytes
    status: int = 200
    media_type: str = JSON


Handler = Callable[[bytes], Awaitable[HttpReply]]


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


async def _send(send: Send, reply: HttpReply) -> None:
    headers = [
        (b"content-length", str(len(reply.body)).encode()),
        (b"content-type", reply.media_type.encode()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def endpoint(handler: Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """The handler as a route of the framework."""

    async def endpoint(request: Request) -> Response:
        reply = await handler(await request.body())
        return Response(reply.body, status_code=reply.status, media_type=reply.media_type)

    return endpoint
