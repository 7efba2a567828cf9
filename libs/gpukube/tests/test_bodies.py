"""Bodies that are too large, too slow or too much together are refused; others arrive whole."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from gpukube.server.bodies import BodyLimits, LimitedBodies, Message
from gpukube.server.connections import ConnectionGate, ConnectionPhase, Limits

END = b"END"
PEER = ("10.0.0.1", 40000)
LIMITS = BodyLimits(each=100, together=150, seconds=5)


class Transport:
    aborted = False

    def get_extra_info(self, name: str) -> None:
        return None

    def abort(self) -> None:
        self.aborted = True


class Caller:
    """One request to an application that reads its body whole."""

    def __init__(self, limits: BodyLimits = LIMITS, app: Any = None) -> None:
        self.gate = ConnectionGate(Limits(connections=10), lambda: 0.0)
        self.app = LimitedBodies(app or self._echo, self.gate, limits)
        self.bodies: list[bytes] = []

    async def _echo(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    def connect(self, peer: tuple[str, int] = PEER) -> Transport:
        """A connection whose request is complete but for its body."""
        connection = self.gate.admit(Mock(socket.socket), peer)
        assert connection is not None
        connection.transport = transport = Transport()
        self.gate.request_received(connection)
        return transport

    async def call(
        self, *parts: bytes | None, length: int | None = None, peer: tuple[str, int] = PEER
    ) -> int:
        """The status of the response to a body in parts; a last part None never comes."""
        statuses: list[int] = []

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        headers = [] if length is None else [(b"content-length", str(length).encode())]
        scope = {"type": "http", "client": peer, "headers": headers}
        await self.app(scope, arriving(parts), send)
        return statuses[0] if statuses else 0


def arriving(parts: tuple[bytes | None, ...]) -> Callable[[], Any]:
    """Receives the parts one by one; None is one that never comes, END means that all came."""
    left = list(parts)

    async def receive() -> Message:
        part = left.pop(0)
        if part is None:
            await asyncio.Event().wait()
        ended = not left or left[0] is END
        del left[: left[:1] == [END]]
        return {"type": "http.request", "body": part, "more_body": not ended}

    return receive


async def test_a_body_within_the_limit_arrives_whole() -> None:
    """And its connection is idle once it is answered."""
    caller = Caller()
    caller.connect()
    assert await caller.call(b"a" * 60, b"b" * 40, length=100) == 200
    assert caller.bodies == [b"a" * 60 + b"b" * 40]
    assert caller.gate._open[PEER].phase is ConnectionPhase.IDLE


async def test_a_length_over_the_limit_is_refused_unread() -> None:
    """The announcement is enough: not one byte is taken."""
    caller = Caller()
    assert await caller.call(None, length=101) == 413
    assert caller.bodies == []


async def test_a_body_that_grows_over_the_limit_is_refused() -> None:
    """Chunked bodies announce no length."""
    assert await Caller().call(b"a" * 60, b"b" * 41, b"c") == 413


async def test_a_body_that_does_not_come_is_refused() -> None:
    """Its time is over at once here; what is waiting is reported, and the connection ends."""
    assert await Caller(BodyLimits(each=100, together=150, seconds=0)).call(b"a", None) == 408


async def test_time_is_for_the_body_alone() -> None:
    """An application may wait for the client to leave long after the body was read."""

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.05)
        await send({"type": "http.response.start", "status": 204, "headers": []})

    limits = BodyLimits(each=100, together=150, seconds=0.01)
    assert await Caller(limits, waits).call(b"", END, None) == 204


async def test_the_largest_body_goes_where_all_are_too_much() -> None:
    """A client that holds a large body costs itself its connection, not others theirs."""
    caller = Caller()
    large = caller.connect(("10.0.0.66", 1))
    holding = asyncio.create_task(caller.call(b"x" * 99, None, peer=("10.0.0.66", 1)))
    await asyncio.sleep(0)
    assert await caller.call(b"y" * 60) == 200
    assert large.aborted
    assert caller.gate.closed == {"memory": 1}
    holding.cancel()
    await asyncio.wait({holding})
    assert not caller.app._held


async def test_many_bodies_of_one_address_cost_no_other_client_its_own() -> None:
    """Each may be smaller than a review of the API server."""
    caller = Caller()
    peers = [("10.0.0.66", port) for port in range(3)]
    attackers = [caller.connect(peer) for peer in peers]
    holding = [asyncio.create_task(caller.call(b"x" * 49, None, peer=peer)) for peer in peers]
    await asyncio.sleep(0)
    assert await caller.call(b"y" * 60) == 200
    assert sum(attacker.aborted for attacker in attackers) == 2
    for task in holding:
        task.cancel()
    await asyncio.wait(holding)


async def test_a_client_that_leaves_before_the_end_of_its_body_is_no_failure() -> None:
    """Frameworks raise an error of their own, which would be logged with a traceback each time."""

    async def framework(_scope: Any, receive: Any, _send: Any) -> None:
        while True:
            if (await receive())["type"] == "http.disconnect":
                raise RuntimeError("the client left")

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(f"nobody receives {message}")

    messages = [
        {"type": "http.request", "body": b"a", "more_body": True},
        {"type": "http.disconnect"},
    ]
    app = Caller(app=framework).app
    with suppress(AssertionError):  # the server drops it
        await app({"type": "http", "client": PEER, "headers": []}, receive, send)
    assert not app._held


async def test_the_applications_own_answer_to_a_broken_off_body_is_dropped() -> None:
    """Frameworks answer every exception with 500; the client learns that its body is too large."""

    async def framework(scope: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
        except Exception:
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"Internal Server Error"})
            raise

    assert await Caller(app=framework).call(b"x" * 60, b"x" * 60) == 413
