"""A client of the API server that replies what a test wrote down, and records every request."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from gpukube.client import Body
from gpukube.errors import StatusError, failure_of


class Request(NamedTuple):
    """One request; ``at`` is the time of the event loop, ``body`` the decoded JSON."""

    method: str
    path: str
    body: Any
    at: float


Reply = bytes | Exception | Callable[[Request], Awaitable[bytes]]


class ScriptedClient:
    """Replies in the order of ``replies``; a request beyond them fails the test.

    Attributes:
        replies: a body, an error to raise, or a function of the request.
        requests: those that came, in order.
    """

    def __init__(self, *replies: Reply) -> None:
        self.replies = deque(replies)
        self.requests: list[Request] = []

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        return await self._reply("GET", path, dict(params) if params else None)

    async def post(self, path: str, body: Body) -> bytes:
        return await self._reply("POST", path, _decoded(body))

    async def patch(self, path: str, body: Body) -> bytes:
        return await self._reply("PATCH", path, _decoded(body))

    async def delete(self, path: str) -> bytes:
        return await self._reply("DELETE", path, None)

    def watch(self, path: str, *, params: Mapping[str, str], silence: float) -> Any:
        raise AssertionError(f"a watch of {path} with {params} and {silence} s is not expected")

    async def _reply(self, method: str, path: str, body: Any) -> bytes:
        request = Request(method, path, body, asyncio.get_running_loop().time())
        self.requests.append(request)
        if not self.replies:
            raise AssertionError(f"a request is not expected: {method} {path}")
        reply = self.replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, bytes) else await reply(request)


async def no_reply(_: Request) -> bytes:
    """Nothing comes back, for as long as the client waits."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("the future of nobody is done")


def failure(status: int, message: str = "", *, retry_after: str = "") -> StatusError:
    """The error that a client raises for a reply with this status."""
    body = json.dumps({"message": message}).encode()
    return failure_of("REQUEST", status, "", body, retry_after=retry_after)


def _decoded(body: Body) -> Any:
    return json.loads(body) if isinstance(body, bytes) else dict(body)
