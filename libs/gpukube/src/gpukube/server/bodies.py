"""Limits of request bodies for ASGI applications.

The applications run behind a :class:`~gpukube.server.connections.ConnectionGate`.

A body over the limit is refused by its Content-Length before it is read. A body without one, or one
that comes too slowly, is refused while it is read. What all requests of the listener hold together
is limited too: of the address that holds most, the client with the largest body is disconnected.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from gpukube.server.connections import ConnectionGate, Peer

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOO_LARGE: Final = 413
TOO_SLOW: Final = 408
CUT_OFF: Final = 400
_WORDS: Final = {
    TOO_LARGE: b"request body too large",
    TOO_SLOW: b"request body too slow",
    CUT_OFF: b"request body cut off",
}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of the request bodies of one listener.

    Attributes:
        each: maximum number of bytes of one body.
        together: maximum number of bytes of all bodies that are held at one time.
        seconds: maximum time from the end of the head to the end of the body.
    """

    each: int
    together: int
    seconds: float = 10.0


class BodyError(Exception):
    """The body exceeds a limit, or its client left before its end.

    Attributes:
        status: the HTTP status to answer with.
    """

    def __init__(self, status: int) -> None:
        super().__init__(_WORDS[status].decode())
        self.status = status


class LimitedBodies:
    """An ASGI application that limits the size of request bodies for another application.

    It also notifies the gate when a response is complete.
    """

    def __init__(self, app: App, gate: ConnectionGate, limits: BodyLimits) -> None:
        self._app, self._gate, self._limits = app, gate, limits
        self._held: dict[_Body, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(self._gate, scope.get("client"), send)
        body = _Body(self, scope.get("client"), receive, self._limits, answer)
        try:
            if announced(scope) > self._limits.each:
                raise answer.broken_off(TOO_LARGE)
            await self._app(scope, body.receive, answer.send)
        except BodyError:
            pass
        finally:
            self._held.pop(body, None)
        if answer.error:
            await answer.refuse(answer.error)

    def hold(self, body: "_Body", size: int) -> bool:
        """Count a body; where all are too much, disconnect a client of the address with most.

        Returns:
            False where that is this body.
        """
        self._held[body] = size
        while sum(self._held.values()) > self._limits.together:
            totals = Counter[str]()
            for each, held in self._held.items():
                totals[each.address] += held
            heaviest = max(totals, key=totals.__getitem__)
            theirs = (each for each in self._held if each.address == heaviest)
            largest = max(theirs, key=self._held.__getitem__)
            del self._held[largest]
            self._gate.close(largest.peer, "memory")
            if largest is body:
                return False
        return True


def announced(scope: Scope) -> int:
    """The Content-Length of a request; 0 without one."""
    for name, value in scope.get("headers", ()):
        if name == b"content-length":
            return int(value)
    return 0


class _Body:
    def __init__(
        self,
        owner: LimitedBodies,
        peer: Peer | None,
        receive: Receive,
        limits: BodyLimits,
        answer: "_Answer",
    ) -> None:
        self.peer = peer
        self.address = peer[0] if peer else ""
        self._owner, self._receive, self._limits = owner, receive, limits
        self._answer = answer
        self._until = asyncio.get_running_loop().time() + limits.seconds
        self._size = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise self._answer.broken_off(TOO_SLOW) from None
        self._take(message)
        return message

    def _take(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            if self._answer.started:
                return
            raise self._answer.broken_off(CUT_OFF)  # frameworks log it as a failure of ours
        self._complete = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        too_large = self._size > self._limits.each
        if too_large or (self._size and not self._owner.hold(self, self._size)):
            raise self._answer.broken_off(TOO_LARGE)


class _Answer:
    """The response; once the body broke a limit, the application's own is dropped.

    Frameworks answer any exception with a response of their own, such as 500.

    Attributes:
        started: the application has begun to respond.
        error: the HTTP status where the body broke a limit; 0 while it has not.
    """

    def __init__(self, gate: ConnectionGate, peer: Peer | None, send: Send) -> None:
        self._gate, self._peer, self._send = gate, peer, send
        self.started = False
        self.error = 0

    def broken_off(self, status: int) -> BodyError:
        """The error to raise: the request ends with this status."""
        self.error = status
        return BodyError(status)

    async def send(self, message: Message) -> None:
        if not self.error:
            await self._pass(message)

    async def _pass(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._gate.answered(self._peer)
        await self._send(message)

    async def refuse(self, status: int) -> None:
        """Answer with an error, and close the connection: the rest of the body is not read."""
        if self.started:
            self._gate.close(self._peer, "size")
            return
        text = _WORDS[status]
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(text)).encode()),
            (b"connection", b"close"),
        ]
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})
        await self._pass({"type": "http.response.body", "body": text})
