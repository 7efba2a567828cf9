"""A client of the API server with prepared responses that records every request."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gpukube.client import Body
from gpukube.errors import StatusError, failure_of


class RecordedRequest(NamedTuple):
    """One request.

    Attributes:
        method: of HTTP, or ``WATCH``.
        body: the decoded JSON, or the query where there is no body.
        at: the time of the event loop.
    """

    method: str
    path: str
    body: Any
    at: float


Reply = bytes | Exception | Callable[[RecordedRequest], Awaitable[bytes]]
Stream = list[list[bytes] | float | Exception]
"""A watch: lines that come together, seconds without any, and the error at its end."""


class ScriptedClient:
    """Replies in the order of ``replies``; a request beyond them fails the test.

    Attributes:
        replies: a body, an error to raise, or a function of the request; for a watch a stream.
        requests: those that came, in order.
    """

    def __init__(self, *replies: Reply | Stream) -> None:
        self.replies = deque(replies)
        self.requests: list[RecordedRequest] = []

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        return await self._reply("GET", path, dict(params) if params else None)

    async def get_in_chunks(
        self, path: str, *, params: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        """A body comes as two chunks."""
        body = await self.get(path, params=params)
        for chunk in (body[: len(body) // 2], body[len(body) // 2 :]):
            yield chunk

    async def post(self, path: str, body: Body) -> bytes:
        return await self._reply("POST", path, _decoded(body))

    async def patch(self, path: str, body: Body) -> bytes:
        return await self._reply("PATCH", path, _decoded(body))

    async def json_patch(self, path: str, operations: Sequence[Mapping[str, Any]]) -> bytes:
        return await self._reply("PATCH", path, list(operations))

    async def delete(self, path: str) -> bytes:
        return await self._reply("DELETE", path, None)

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncGenerator[list[bytes], None]:
        stream = self._next("WATCH", path, {**params, "silence": silence})[1]
        if isinstance(stream, Exception):
            raise stream
        assert isinstance(stream, list), f"not a stream: {stream!r}"
        yield []
        for part in stream:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, list):
                yield part
            else:
                await asyncio.sleep(part)

    async def _reply(self, method: str, path: str, body: Any) -> bytes:
        request, reply = self._next(method, path, body)
        if isinstance(reply, Exception):
            raise reply
        assert not isinstance(reply, list), f"a stream for {method} {path}"
        return reply if isinstance(reply, bytes) else await reply(request)

    def _next(self, method: str, path: str, body: Any) -> tuple[RecordedRequest, Reply | Stream]:
        request = RecordedRequest(method, path, body, asyncio.get_running_loop().time())
        self.requests.append(request)
        if not self.replies:
            raise AssertionError(f"a request is not expected: {method} {path}")
        return request, self.replies.popleft()


async def no_reply(_: RecordedRequest) -> bytes:
    """Never respond."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("no future is done")


def failure(status: int, message: str = "", *, retry_after: str = "") -> StatusError:
    """The error that a client raises for a reply with this status."""
    body = json.dumps({"message": message}).encode()
    return failure_of("REQUEST", status, "", body, retry_after=retry_after)


def _decoded(body: Body) -> Any:
    return json.loads(body) if isinstance(body, bytes) else dict(body)
