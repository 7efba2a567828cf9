"""The verbs answered in front of the framework, which costs more than most of their answers.

A scheduler calls three verbs a pod, one after the other; routing, dependency and middleware layers
cost each of them a tenth of a millisecond and more. Here a POST to a verb's path goes straight to
its handler; everything else, and every path that is not exactly a verb's, is the framework's. The
same handlers are mounted there too: that is where they are documented, and where requests are
traced when tracing is on.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

JSON: Final = "application/json"


class Reply(msgspec.Struct, frozen=True):
    """A body of JSON and its status."""

    body: bytes
    status: int = 200


Handler = Callable[[bytes], Awaitable[Reply]]


class Front:
    """An ASGI application.

    Args:
        handlers: by path, for POST.
        behind: answers everything else.
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


async def _send(send: Send, reply: Reply) -> None:
    headers = [
        (b"content-length", str(len(reply.body)).encode()),
        (b"content-type", JSON.encode()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
