"""Many calls to an API server at once, over a bounded number of connections."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

import aiohttp
import msgspec

from environments.controlplane import unverified

CALL_SECONDS = 60
MERGE_PATCH = "application/merge-patch+json"


class ApiServerAddress(Protocol):
    """Where an API server is and with which token it is called; a ControlPlane is one."""

    @property
    def url(self) -> str:
        """``https://127.0.0.1:<port>``."""
        ...

    @property
    def token(self) -> str:
        """Of a user."""
        ...


class ApiCalls:
    """A session with one control plane; use as ``async with ApiCalls.to(plane)``."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    @classmethod
    @asynccontextmanager
    async def to(cls, plane: ApiServerAddress, *, connections: int = 16) -> AsyncIterator[Self]:
        """A session of at most ``connections`` connections."""
        connector = aiohttp.TCPConnector(limit=connections, ssl=unverified())
        async with aiohttp.ClientSession(
            base_url=plane.url,
            connector=connector,
            headers={"Authorization": f"Bearer {plane.token}"},
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS),
        ) as session:
            yield cls(session)

    async def create(self, path: str, objects: Iterable[Any], *, parallel: int = 32) -> int:
        """POST every object to ``path``; how many there were. An existing one is left as it is."""
        pending = iter(objects)
        counts = await asyncio.gather(*(self._create(path, pending) for _ in range(parallel)))
        return sum(counts)

    async def _create(self, path: str, pending: Iterable[Any]) -> int:
        count = 0
        for item in pending:
            await self.call("POST", path, item, fine=(201, 409))
            count += 1
        return count

    async def call(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        fine: tuple[int, ...] = (200, 201),
    ) -> bytes:
        """One call; the body of the answer.

        Raises:
            AssertionError: another status than those in ``fine``.
        """
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": kind}
        async with self.session.request(verb, path, data=data, headers=headers) as answer:
            content = await answer.read()
            if answer.status not in fine:
                raise AssertionError(f"{verb} {path}: {answer.status} {content[:500]!r}")
            return content
